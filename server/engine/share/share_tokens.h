// ShareTokens: descriptors waiting to be fetched, each under a token that works once, for 10 s.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"
#include "server/engine/sessions/handle.h"
#include "server/engine/share/share.h"

namespace gemmd::server {

// Thread-safe. Owns the waiting descriptors. Descriptors are closed with no lock held: closing a
// client's may block on its file system.
class ShareTokens {
 public:
  enum class Way { kGet, kPut };

  // `most`: tokens that wait, each way.
  ShareTokens(const Clock& clock, int most) : clock_(clock), most_(most) {}

  // RESOURCE_EXHAUSTED when `owner`, a tenant or a user id, has its fair share of that way's, or
  // none is left.
  absl::StatusOr<Handle> Add(Way way, UniqueFd fd, std::string_view owner);
  // Nothing for a token that is unknown, used, expired, or of the other way.
  std::optional<UniqueFd> Take(Way way, const Handle& token);
  // Closes what has expired. Returns how many wait still.
  int DropExpired();

 private:
  struct Entry {
    UniqueFd fd;
    Way way;
    absl::Time expiry;
    std::string owner;
  };
  struct Pool {
    int waiting = 0;
    absl::flat_hash_map<std::string, int> by_owner;  // those that have some
  };
  using Entries = absl::flat_hash_map<Handle, Entry>;

  Entries RemoveExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(const Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How many an owner that asks for one may have.
  int ShareOf(Way way, const std::string& owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Pool& pool(Way way) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return way == Way::kGet ? gets_ : puts_;
  }

  const Clock& clock_;
  const int most_;
  absl::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  Pool gets_ ABSL_GUARDED_BY(mutex_);
  Pool puts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
