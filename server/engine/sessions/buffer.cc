#include "server/engine/sessions/buffer.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/scheduling/device.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

using kernels::MemoryKind;

// What the buffer takes of the device and of its tenant's limit.
int64_t TakenBytes(const BufferSpec& spec) {
  constexpr int64_t kBlock = kernels::kDeviceSharedBlockBytes;
  if (spec.kind != MemoryKind::kDeviceShared) return spec.size_bytes;
  if (spec.size_bytes > std::numeric_limits<int64_t>::max() - kBlock) return spec.size_bytes;
  return (spec.size_bytes + kBlock - 1) / kBlock * kBlock;
}

absl::StatusOr<std::unique_ptr<kernels::Memory>> Obtain(kernels::Backend& backend,
                                                        const BufferSpec& spec,
                                                        const BufferImport& import) {
  if (import.device != nullptr) return backend.ImportDevice(*import.device);
  if (import.fd >= 0) return backend.ImportShared(import.fd, spec.size_bytes);
  return backend.Allocate(spec.size_bytes, spec.kind);
}

absl::Status Explained(absl::Status status, MemoryKind kind) {
  if (absl::IsResourceExhausted(status)) return WithReason(status, reason::kDeviceMemory);
  const bool of_ipc = kind == MemoryKind::kDeviceShared || kind == MemoryKind::kDeviceImported;
  if (of_ipc && (absl::IsFailedPrecondition(status) || absl::IsUnimplemented(status))) {
    return WithReason(status, reason::kNotShared);
  }
  return status;
}

}  // namespace

Buffer::Buffer(Device& device, BufferSpec spec, absl::Time now)
    : device_(device), spec_(std::move(spec)), created_(now) {}

Buffer::~Buffer() {
  if (memory_ != nullptr) device_.RemoveBuffer(spec_.kind, TakenBytes(spec_));
  // Before what is held until then: who is told may take the place at once.
  memory_.reset();
  bytes_.Release();
  count_.Release();
}

absl::StatusOr<std::shared_ptr<Buffer>> Buffer::Create(Tenant& tenant, Device& device,
                                                       BufferSpec spec, absl::Time now,
                                                       const BufferImport& import) {
  std::shared_ptr<Buffer> buffer(new Buffer(device, std::move(spec), now));
  GEMMD_ASSIGN_OR_RETURN(Charge count, tenant.TakeBuffer());
  GEMMD_ASSIGN_OR_RETURN(Charge bytes, tenant.TakeBufferBytes(TakenBytes(buffer->spec_)));
  auto memory = Obtain(device.backend(), buffer->spec_, import);
  if (!memory.ok()) return Explained(memory.status(), buffer->spec_.kind);
  buffer->count_ = std::move(count);
  buffer->bytes_ = std::move(bytes);
  buffer->memory_ = *std::move(memory);
  device.AddBuffer(buffer->spec_.kind, TakenBytes(buffer->spec_));
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

void Buffer::HoldUntilFreed(std::shared_ptr<void> token) {
  absl::MutexLock lock(&mutex_);
  held_.push_back(std::move(token));
}

Buffer::UploadState Buffer::upload() const {
  absl::MutexLock lock(&mutex_);
  return upload_;
}

}  // namespace gemmd::server
