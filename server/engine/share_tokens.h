// ShareTokens: descriptors waiting to be fetched, each under a token that works once, for 10 s.

#ifndef GEMMD_SERVER_ENGINE_SHARE_TOKENS_H_
#define GEMMD_SERVER_ENGINE_SHARE_TOKENS_H_

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/clock.h"
#include "server/engine/handle.h"
#include "server/engine/share.h"

namespace gemmd::server {

// Thread-safe. Owns the waiting descriptors. Descriptors are closed with no lock held: closing a
// client's may block on its file system.
class ShareTokens {
 public:
  enum class Way { kGet, kPut };

  explicit ShareTokens(const Clock& clock) : clock_(clock) {}

  // RESOURCE_EXHAUSTED at ShareSocket::kMaxPending or kMaxPendingPuts.
  absl::StatusOr<Handle> Add(Way way, UniqueFd fd);
  // Nothing for a token that is unknown, used, expired, or of the other way.
  std::optional<UniqueFd> Take(Way way, const Handle& token);
  // Closes what has expired. Returns how many wait still.
  int DropExpired();

 private:
  struct Entry {
    UniqueFd fd;
    Way way;
    absl::Time expiry;
  };
  using Entries = absl::flat_hash_map<Handle, Entry>;

  Entries RemoveExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int& count(Way way) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return way == Way::kGet ? gets_ : puts_;
  }

  const Clock& clock_;
  absl::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  int gets_ ABSL_GUARDED_BY(mutex_) = 0;
  int puts_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_SHARE_TOKENS_H_
