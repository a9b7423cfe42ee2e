#include "client/cpp/buffer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/internal/connect/buffer_state.h"
#include "client/cpp/internal/connect/share_socket.h"
#include "client/cpp/internal/transfers/grpc_transfer.h"
#include "client/cpp/internal/transfers/shm_transfer.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

absl::Status CheckRange(const Buffer::State& buffer, int64_t offset_bytes, size_t size,
                        const TransferOptions& options) {
  constexpr int64_t kLeast = 4 << 10;
  constexpr int64_t kMost = 3 << 20;
  if (options.chunk_bytes < kLeast || options.chunk_bytes > kMost) {
    return absl::InvalidArgumentError(absl::StrCat("chunk_bytes=", options.chunk_bytes,
                                                   " is not in [", kLeast, ", ", kMost, "]"));
  }
  if (offset_bytes < 0 || offset_bytes > buffer.size_bytes ||
      size > static_cast<uint64_t>(buffer.size_bytes - offset_bytes)) {
    return absl::OutOfRangeError(absl::StrCat(size, " bytes at offset ", offset_bytes,
                                              " do not lie in a buffer of ", buffer.size_bytes));
  }
  return absl::OkStatus();
}

absl::Status NoBuffer() { return absl::FailedPreconditionError("this Buffer object holds none"); }

}  // namespace

Buffer::Buffer() = default;
Buffer::Buffer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Buffer::Buffer(Buffer&&) noexcept = default;

Buffer::~Buffer() {
  if (state_ && state_->owned) state_->session->reaper().DropBuffer(state_->id);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer old(std::move(other));
  std::swap(state_, old.state_);
  return *this;
}

const Buffer::State& Buffer::state() const {
  if (state_) return *state_;
  static const State& none = *new State;
  return none;
}

const Handle& Buffer::id() const { return state().id; }
int64_t Buffer::size_bytes() const { return state().size_bytes; }
DType Buffer::dtype() const { return state().dtype; }
absl::Span<const int64_t> Buffer::shape() const { return state().shape; }
MemoryKind Buffer::memory_kind() const { return state().memory_kind; }
absl::string_view Buffer::device() const { return state().device; }
absl::string_view Buffer::label() const { return state().label; }
absl::string_view Buffer::published_name() const { return state().published_name; }
absl::string_view Buffer::content_hash() const { return state().content_hash; }
bool Buffer::read_only() const { return state().read_only; }
bool Buffer::owned() const { return state().owned; }

Tensor Buffer::tensor() const { return Tensor(state().id, state().dtype, state().shape); }

Tensor Buffer::View(DType dtype, absl::Span<const int64_t> shape, int64_t offset_bytes) const {
  return Tensor(state().id, dtype, shape, offset_bytes);
}

absl::StatusOr<TransferReport> Buffer::Upload(absl::string_view data, int64_t offset_bytes,
                                              const TransferOptions& options) {
  if (!state_) return NoBuffer();
  absl::Status status = state_->session->client().Usable(options.call);
  if (status.ok()) status = CheckRange(*state_, offset_bytes, data.size(), options);
  if (!status.ok()) return status;
  if (WorthSharing(*state_, data.size(), options)) {
    absl::StatusOr<TransferReport> shared = ShmUpload(*state_, data, offset_bytes, options);
    if (shared.ok() || !MayFallBack(shared.status(), options)) return shared;
  }
  return GrpcUpload(*state_, data, offset_bytes, options);
}

absl::StatusOr<TransferReport> Buffer::Download(absl::Span<char> data, int64_t offset_bytes,
                                                const TransferOptions& options) const {
  if (!state_) return NoBuffer();
  absl::Status status = state_->session->client().Usable(options.call);
  if (status.ok()) status = CheckRange(*state_, offset_bytes, data.size(), options);
  if (!status.ok()) return status;
  if (WorthSharing(*state_, data.size(), options)) {
    absl::StatusOr<TransferReport> shared = ShmDownload(*state_, data, offset_bytes, options);
    if (shared.ok() || !MayFallBack(shared.status(), options)) return shared;
  }
  return GrpcDownload(*state_, data, offset_bytes, options);
}

absl::StatusOr<absl::Span<char>> Buffer::Map() {
  if (!state_) return NoBuffer();
  return state_->Map(/*for_writing=*/true);
}

absl::StatusOr<absl::string_view> Buffer::MapReadOnly() const {
  if (!state_) return NoBuffer();
  GEMMD_ASSIGN_OR_RETURN(const absl::Span<char> memory, state_->Map(/*for_writing=*/false));
  return absl::string_view(memory.data(), memory.size());
}

absl::StatusOr<DeviceMemory> Buffer::ShareDevice() const {
  if (!state_) return NoBuffer();
  if (state_->memory_kind != MemoryKind::kDeviceShared) {
    return absl::FailedPreconditionError(
        absl::StrCat("only a kDeviceShared buffer is mapped by CUDA IPC; this one is ",
                     Name(state_->memory_kind)));
  }
  return FetchDeviceMemory(*state_->session, state_->id);
}

absl::Status Buffer::Delete(const CallOptions& options) {
  if (!state_) return NoBuffer();
  const std::unique_ptr<State> state = std::move(state_);
  v1::DeleteBuffersRequest request;
  request.add_buffer_ids(std::string(state->id.bytes()));
  return state->session->Ask<v1::DeleteBuffersResponse>(request, options).status();
}

Handle Buffer::Release() {
  if (!state_) return Handle();
  const std::unique_ptr<State> state = std::move(state_);
  return state->id;
}

absl::StatusOr<absl::Span<char>> Buffer::State::Map(bool for_writing) {
  if (memory_kind != MemoryKind::kHostShared) {
    return absl::FailedPreconditionError(
        "only a kHostShared buffer can be mapped; this one is device memory");
  }
  if (for_writing && read_only) {
    return absl::FailedPreconditionError("the buffer is read-only; use MapReadOnly");
  }
  absl::MutexLock lock(&mu);
  if (writable.size_bytes() > 0 && !read_only) return writable.span();
  SharedMemory& memory = for_writing ? writable : readable;
  if (memory.size_bytes() == 0) {
    GEMMD_ASSIGN_OR_RETURN(memory, FetchMemory(*session, id, size_bytes, for_writing));
  }
  return memory.span();
}

absl::StatusOr<Buffer> MakeBuffer(std::shared_ptr<SessionCore> session, const v1::Buffer& info,
                                  bool owned, SharedMemory mapped) {
  const absl::StatusOr<Handle> id = Handle::FromBytes(info.buffer_id());
  if (!id.ok())
    return absl::InternalError(absl::StrCat("the server's buffer: ", id.status().message()));
  auto state = std::make_unique<Buffer::State>();
  state->session = std::move(session);
  state->id = *id;
  state->size_bytes = info.size_bytes();
  state->device = info.device();
  state->memory_kind = static_cast<MemoryKind>(info.memory_kind());
  state->dtype = static_cast<DType>(info.dtype());
  state->shape.assign(info.shape().begin(), info.shape().end());
  state->label = info.label();
  state->published_name = info.published_name();
  state->content_hash = info.content_hash();
  state->read_only = info.read_only();
  state->owned = owned;
  {
    absl::MutexLock lock(&state->mu);
    state->writable = std::move(mapped);
  }
  return Buffer(std::move(state));
}

void SetReadOnly(Buffer& buffer) { buffer.state_->read_only = true; }

absl::StatusOr<int> FetchShared(const SessionCore& session, const Handle& buffer, bool writable,
                                const CallOptions& options) {
  GEMMD_RETURN_IF_ERROR(session.client().ShareSocket().status());
  v1::ExportBufferRequest request;
  request.set_buffer_id(std::string(buffer.bytes()));
  request.set_writable(writable);
  GEMMD_ASSIGN_OR_RETURN(const v1::ExportBufferResponse response,
                         session.Ask<v1::ExportBufferResponse>(request, options));
  return FetchDescriptor(response.share_socket(), response.token());
}

absl::StatusOr<SharedMemory> FetchMemory(const SessionCore& session, const Handle& buffer,
                                         int64_t size_bytes, bool writable,
                                         const CallOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(const int fd, FetchShared(session, buffer, writable, options));
  return SharedMemory::Adopt(fd, size_bytes, writable);
}

}  // namespace gemmd::client
