// Buffer: one allocation on one device. Handles name it (its owner's, and those of sessions that
// found it by its published name) and programs in flight use it; the last of them to let go frees
// it. That is why it is held by shared_ptr: a BufferLease is a share, and while it lives the bytes
// stay.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "server/engine/sessions/tenant.h"

namespace gemmd::server {

class Device;

struct BufferSpec {
  int64_t size_bytes = 0;
  kernels::MemoryKind kind = kernels::MemoryKind::kDevice;
  std::optional<kernels::DType> dtype;  // nothing: a plain run of bytes
  kernels::Dims shape;                  // rank 0 when untyped
  std::string label;
};

// A client's memory to wrap, instead of an allocation.
struct BufferImport {
  int fd = -1;                                    // kHostShared: its memfd
  const kernels::DeviceHandle* device = nullptr;  // kDeviceImported
};

class Buffer {
 public:
  // Charges the tenant, then allocates, or wraps what `import` gives. Nothing is left on failure.
  static absl::StatusOr<std::shared_ptr<Buffer>> Create(Tenant& tenant, Device& device,
                                                        BufferSpec spec, absl::Time now,
                                                        const BufferImport& import = {});
  ~Buffer();

  const BufferSpec& spec() const { return spec_; }
  Device& device() const { return device_; }
  kernels::Memory& memory() const { return *memory_; }
  absl::Time created() const { return created_; }

  // Once published a buffer is read-only for good, to its owner too.
  bool published() const { return published_.load(std::memory_order_acquire); }
  void MarkPublished() { published_.store(true, std::memory_order_release); }

  // One upload at a time: ABORTED while another is under way. What it has committed survives it.
  absl::Status BeginUpload(int64_t offset_bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void CommitUpload(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndUpload() ABSL_LOCKS_EXCLUDED(mutex_);
  struct UploadState {
    int64_t offset_bytes = 0;
    int64_t committed_bytes = 0;
    bool active = false;
  };
  UploadState upload() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Lets go of `token` once the memory is freed or unmapped, and not before.
  void HoldUntilFreed(std::shared_ptr<void> token) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Buffer(Device& device, BufferSpec spec, absl::Time now);

  Device& device_;
  const BufferSpec spec_;
  const absl::Time created_;
  Charge count_, bytes_;
  std::unique_ptr<kernels::Memory> memory_;
  std::atomic<bool> published_{false};
  mutable absl::Mutex mutex_;
  UploadState upload_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<void>> held_ ABSL_GUARDED_BY(mutex_);
};

using BufferLease = std::shared_ptr<Buffer>;

// A handle's view of a buffer.
struct BufferRef {
  BufferLease buffer;
  bool found = false;  // by name: read-only whatever else
  bool read_only() const { return found || buffer->published(); }
};

}  // namespace gemmd::server
