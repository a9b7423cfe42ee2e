// PublishedBuffers: buffers that a tenant's sessions share by name, read-only. A name keeps its
// buffer alive, also after the session that made it has ended.

#ifndef GEMMD_SERVER_ENGINE_SESSIONS_PUBLISHED_H_
#define GEMMD_SERVER_ENGINE_SESSIONS_PUBLISHED_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/sessions/buffer.h"

namespace gemmd::server {

// Thread-safe.
class PublishedBuffers {
 public:
  // ALREADY_EXISTS when the tenant uses the name; FAILED_PRECONDITION for a found buffer (it has a
  // name already), one that an upload is writing, or imported device memory.
  absl::Status Publish(const Tenant& tenant, std::string_view name, const BufferRef& ref);
  absl::StatusOr<BufferLease> Find(const Tenant& tenant, std::string_view name) const;
  absl::Status Unpublish(const Tenant& tenant, std::string_view name);
  std::vector<BufferLease> List(const Tenant& tenant) const;  // by name
  // The name of a buffer; empty when it has none.
  std::string NameOf(const Buffer& buffer) const;
  void Clear();

 private:
  using Key = std::pair<int, std::string>;  // tenant's index, name
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<Key, BufferLease> by_name_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Buffer*, std::string> names_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_SESSIONS_PUBLISHED_H_
