// PublishedBuffers: buffers that a tenant's sessions share by name, read-only. A name keeps its
// buffer alive, also after the session that made it has ended.
//
// Names may have versions (weight_name.h). A name without one means the current version of its
// outermost folder that has one, and the buffer of just that name where none has. What a session
// holds decides for it: as long as it holds a buffer that it found as version 1 of "m", all of "m"
// is version 1 to it, so that no program of it mixes two. Docs: docs/weights.md.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/clock.h"
#include "server/engine/sessions/buffer.h"
#include "server/engine/sessions/published_claim.h"
#include "server/engine/sessions/weight_name.h"

namespace gemmd::server {

// What a publisher says of a buffer.
struct PublishOptions {
  std::string owner;                  // the principal's name
  std::string content_hash;           // empty, or 32 bytes
  std::optional<absl::Duration> ttl;  // unpublished after this long without a holder
  uint64_t session = 0;               // key of the publisher's; 0: none
};

// What is known of a published buffer beside its bytes.
struct PublishedFacts {
  std::string name;
  std::string owner;
  std::string content_hash;
  std::optional<absl::Duration> ttl;
  absl::Time published;
  absl::Time last_use;   // now, while a session holds it
  int64_t holders = 0;   // handles of sessions
  bool current = false;  // its version is
};

// Thread-safe. Outlives the claims on it.
class PublishedBuffers {
 public:
  explicit PublishedBuffers(const Clock& clock) : clock_(clock) {}

  // ALREADY_EXISTS when the tenant uses the name; FAILED_PRECONDITION for a found buffer (it has a
  // name already), one that an upload is writing, imported device memory, a name without version
  // below one that has versions, or a version that lost names while sessions hold others of it.
  // The claim is for the publisher's own handle.
  absl::StatusOr<PublishedClaim> Publish(const Tenant& tenant, std::string_view name,
                                         const BufferRef& ref, PublishOptions options = {});

  struct Found {
    BufferLease buffer;
    PublishedClaim claim;  // lives beside the handle
  };
  // For the session with that key.
  absl::StatusOr<Found> Find(const Tenant& tenant, std::string_view name, uint64_t session);

  // With `unless_held` FAILED_PRECONDITION while a session holds the buffer, or another of its
  // version.
  absl::Status Unpublish(const Tenant& tenant, std::string_view name, bool unless_held = false);

  struct Switched {
    int64_t previous = 0;  // version; 0: none
    int64_t names = 0;     // of the version that is current now
  };
  // Makes a version of `base` current, for all of its names at once. NOT_FOUND when nothing is
  // published under it.
  absl::StatusOr<Switched> Switch(const Tenant& tenant, std::string_view base, int64_t version);

  struct Listed {
    BufferLease buffer;
    PublishedFacts facts;
  };
  std::vector<Listed> List(const Tenant& tenant) const;  // by name

  // Of a buffer; nothing when it has no name.
  std::optional<PublishedFacts> FactsOf(const Buffer& buffer) const;
  // Its name; empty when it has none.
  std::string NameOf(const Buffer& buffer) const;

  // Takes the names away whose ttl is over, at most every 250 ms, and tells which.
  std::vector<std::string> Expire();
  // The machine's clock was set: what was to expire in a while still does in that while.
  void MoveTimes(absl::Duration by);
  void Clear();

 private:
  friend class PublishedClaim;
  using Entry = PublishedClaim::Entry;
  using Key = std::pair<int, std::string>;  // tenant's index, name or base

  struct Version {
    int64_t names = 0;
    int64_t holders = 0;
    absl::Time last_use = absl::InfinitePast();
    bool lost_names = false;  // since it was last held by nobody
  };
  struct Versions {
    int64_t current = 0;
    std::map<int64_t, Version> all;
  };
  // What a session's handles pin.
  struct Pins {
    struct Pin {
      int64_t version = 0;
      int64_t handles = 0;
    };
    std::map<std::string, Pin> versions;   // by base
    std::map<std::string, int64_t> plain;  // handles by name
    bool HoldsBelow(std::string_view base) const;
  };
  struct Resolved {
    std::string name;  // in full
    PublishedClaim::Via via;
  };

  Resolved Resolve(const Tenant& tenant, std::string_view name, uint64_t session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckFree(const Tenant& tenant, const WeightName& name, const BufferRef& ref) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NoName(const Tenant& tenant, std::string_view name, std::string_view resolved) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PublishedClaim Claim(std::shared_ptr<Entry> entry, uint64_t session, PublishedClaim::Via via)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(PublishedClaim& claim) ABSL_LOCKS_EXCLUDED(mutex_);
  // The entry's buffer, for the caller to let go of without the lock.
  BufferLease Remove(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PublishedFacts Facts(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Version* VersionOf(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Version* VersionOf(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetVersionIfGone(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  mutable absl::Mutex mutex_;
  // Entries are shared with claims, which outlive the name.
  absl::flat_hash_map<Key, std::shared_ptr<Entry>> by_name_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Buffer*, std::shared_ptr<Entry>> by_buffer_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Key, Versions> versions_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Pins> pins_ ABSL_GUARDED_BY(mutex_);  // by session
  int64_t with_ttl_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time next_expiry_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace gemmd::server
