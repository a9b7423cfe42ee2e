#include "server/engine/buffer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/device.h"
#include "server/engine/reason.h"

namespace gemmd::server {

Buffer::Buffer(Device& device, BufferSpec spec, absl::Time now)
    : device_(device), spec_(std::move(spec)), created_(now) {}

Buffer::~Buffer() {
  if (memory_ != nullptr) device_.RemoveBuffer(spec_.kind, spec_.size_bytes);
}

absl::StatusOr<std::shared_ptr<Buffer>> Buffer::Create(Tenant& tenant, Device& device,
                                                       BufferSpec spec, absl::Time now,
                                                       int import_fd) {
  std::shared_ptr<Buffer> buffer(new Buffer(device, std::move(spec), now));
  absl::StatusOr<Charge> count = tenant.TakeBuffer();
  if (!count.ok()) return count.status();
  absl::StatusOr<Charge> bytes = tenant.TakeBufferBytes(buffer->spec_.size_bytes);
  if (!bytes.ok()) return bytes.status();
  auto memory = import_fd >= 0
                    ? device.backend().ImportShared(import_fd, buffer->spec_.size_bytes)
                    : device.backend().Allocate(buffer->spec_.size_bytes, buffer->spec_.kind);
  if (!memory.ok()) {
    return absl::IsResourceExhausted(memory.status())
               ? WithReason(memory.status(), reason::kDeviceMemory)
               : memory.status();
  }
  buffer->count_ = *std::move(count);
  buffer->bytes_ = *std::move(bytes);
  buffer->memory_ = *std::move(memory);
  device.AddBuffer(buffer->spec_.kind, buffer->spec_.size_bytes);
  return buffer;
}

absl::Status Buffer::BeginUpload(int64_t offset_bytes) {
  absl::MutexLock lock(&mutex_);
  if (upload_.active) {
    return WithReason(
        absl::AbortedError(absl::StrCat("another upload to this buffer is under way, at byte ",
                                        upload_.offset_bytes + upload_.committed_bytes,
                                        "; wait for it or use another buffer")),
        reason::kUploadBusy);
  }
  upload_ = {.offset_bytes = offset_bytes, .committed_bytes = 0, .active = true};
  return absl::OkStatus();
}

void Buffer::CommitUpload(int64_t bytes) {
  absl::MutexLock lock(&mutex_);
  upload_.committed_bytes += bytes;
}

void Buffer::EndUpload() {
  absl::MutexLock lock(&mutex_);
  upload_.active = false;
}

Buffer::UploadState Buffer::upload() const {
  absl::MutexLock lock(&mutex_);
  return upload_;
}

}  // namespace gemmd::server
