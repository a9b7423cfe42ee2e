#include "client/cpp/shm_transfer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <future>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "client/cpp/buffer_state.h"
#include "client/cpp/call.h"
#include "client/cpp/ops.h"
#include "client/cpp/program.h"
#include "client/cpp/wide_copy.h"

namespace gemmd::client {
namespace {

constexpr size_t kLeastStaged = 1 << 20;  // below, one gRPC message costs less than a Copy op
constexpr int kHalves = 2;                // one is copied by the device while the other is filled
constexpr int64_t kHalfBytes = 8 << 20;

absl::Status EnsureStaging(const Buffer::State& buffer, Staging& staging)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(staging.mu) {
  if (staging.memory.size_bytes() > 0) return absl::OkStatus();
  SessionCore& session = *buffer.session;
  v1::CreateBufferRequest request;
  request.set_session_id(session.id());
  request.set_size_bytes(kHalves * kHalfBytes);
  request.set_device(buffer.device);
  request.set_memory_kind(v1::MEMORY_KIND_HOST_SHARED);
  request.set_label("client staging");
  v1::Buffer info;
  absl::Status created =
      Call(session.client(), CallOptions(), Again::kUnsentOnly, [&](grpc::ClientContext& context) {
        return session.connection().buffers.CreateBuffer(&context, request, &info);
      });
  if (!created.ok()) return created;
  const absl::StatusOr<Handle> id = Handle::FromBytes(info.buffer_id());
  if (!id.ok()) return absl::InternalError(id.status().message());
  absl::StatusOr<SharedMemory> memory =
      FetchMemory(session, *id, kHalves * kHalfBytes, /*writable=*/true);
  if (!memory.ok()) {
    session.reaper().DropBuffer(*id);
    return memory.status();
  }
  staging.buffer = *id;
  staging.memory = *std::move(memory);
  return absl::OkStatus();
}

// Moves `size` bytes through the two halves of a staging buffer, half after half.
class Relay {
 public:
  Relay(const Buffer::State& buffer, Staging& staging, const TransferOptions& options)
      : buffer_(buffer),
        staging_(staging),
        options_(options),
        deadline_(buffer.session->client().DeadlineOf(options.call)) {}
  // Nothing may still use the halves when the next transfer gets them.
  ~Relay() {
    for (std::future<absl::Status>& copy : copies_) {
      if (copy.valid()) copy.wait();
    }
  }

  absl::Status Upload(absl::string_view data, int64_t offset_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(staging_.mu) {
    const auto size = static_cast<int64_t>(data.size());
    int half = 0;
    for (int64_t at = 0; at < size; at += kHalfBytes, half ^= 1) {
      const int64_t bytes = std::min(kHalfBytes, size - at);
      if (absl::Status status = Await(half); !status.ok()) return status;
      WideCopy(Half(half), data.data() + at, static_cast<size_t>(bytes));
      Copy(half, offset_bytes + at, bytes, /*to_buffer=*/true);
      if (options_.progress) options_.progress(at + bytes, size);
    }
    absl::Status status = Await(half);
    status.Update(Await(half ^ 1));
    return status;
  }

  absl::Status Download(absl::Span<char> data, int64_t offset_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(staging_.mu) {
    const auto size = static_cast<int64_t>(data.size());
    int64_t asked = 0;
    for (int half = 0; half < kHalves && asked < size; ++half) {
      asked += Ask(half, offset_bytes, asked, size);
    }
    int half = 0;
    for (int64_t at = 0; at < size; at += kHalfBytes, half ^= 1) {
      const int64_t bytes = std::min(kHalfBytes, size - at);
      if (absl::Status status = Await(half); !status.ok()) return status;
      WideCopy(data.data() + at, Half(half), static_cast<size_t>(bytes));
      if (asked < size) asked += Ask(half, offset_bytes, asked, size);
      if (options_.progress) options_.progress(at + bytes, size);
    }
    return absl::OkStatus();
  }

 private:
  char* Half(int half) ABSL_EXCLUSIVE_LOCKS_REQUIRED(staging_.mu) {
    return staging_.memory.span().data() + half * kHalfBytes;
  }

  int64_t Ask(int half, int64_t offset_bytes, int64_t at, int64_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(staging_.mu) {
    const int64_t bytes = std::min(kHalfBytes, size - at);
    Copy(half, offset_bytes + at, bytes, /*to_buffer=*/false);
    return bytes;
  }

  // Bytes are copied as I8, the type without an alignment.
  void Copy(int half, int64_t offset_bytes, int64_t bytes, bool to_buffer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(staging_.mu) {
    Tensor from(staging_.buffer, DType::kI8, {bytes}, half * kHalfBytes);
    Tensor to(buffer_.id, DType::kI8, {bytes}, offset_bytes);
    if (!to_buffer) std::swap(from, to);
    OpList ops;
    ops.Add(client::Copy{from, to});
    ExecuteOptions options = {.report = ReportLevel::kNone, .call = options_.call};
    if (deadline_ != absl::InfiniteFuture()) {
      options.call.timeout = std::max(deadline_ - absl::Now(), absl::Milliseconds(1));
    }
    auto done = std::make_shared<std::promise<absl::Status>>();  // a std::function must be copyable
    copies_[half] = done->get_future();
    RunAsync(buffer_.session, ExecuteProgram(*buffer_.session, ops, options), options.call,
             [done](const absl::StatusOr<Result>& result) { done->set_value(result.status()); });
  }

  absl::Status Await(int half) {
    return copies_[half].valid() ? copies_[half].get() : absl::OkStatus();
  }

  const Buffer::State& buffer_;
  Staging& staging_;
  const TransferOptions& options_;
  const absl::Time deadline_;
  std::array<std::future<absl::Status>, kHalves> copies_;
};

// `direct` moves the bytes of a mapped buffer, `relayed` those of a device's.
absl::StatusOr<TransferReport> Move(Buffer::State& buffer, int64_t size, bool for_writing,
                                    const TransferOptions& options,
                                    const std::function<void(char* memory)>& direct,
                                    const std::function<absl::Status(Staging& staging)>& relayed) {
  const absl::Time start = absl::Now();
  if (buffer.memory_kind == MemoryKind::kHostShared) {
    const absl::StatusOr<absl::Span<char>> memory = buffer.Map(for_writing);
    if (!memory.ok()) return memory.status();
    direct(memory->data());
    if (options.progress) options.progress(size, size);
  } else {
    Staging& staging = buffer.session->StagingFor(buffer.device);
    absl::MutexLock lock(&staging.mu);
    if (absl::Status status = EnsureStaging(buffer, staging); !status.ok()) return status;
    if (absl::Status status = relayed(staging); !status.ok()) return status;
  }
  return TransferReport{.path = TransferPath::kShm,
                        .bytes = size,
                        .seconds = absl::ToDoubleSeconds(absl::Now() - start)};
}

}  // namespace

bool WorthSharing(const Buffer::State& buffer, size_t size, const TransferOptions& options) {
  if (options.route == TransferOptions::Route::kGrpc || size == 0) return false;
  if (options.route == TransferOptions::Route::kShm) return true;
  return (buffer.memory_kind == MemoryKind::kHostShared || size >= kLeastStaged) &&
         buffer.session->client().ShareSocket().ok();
}

bool MayFallBack(const absl::Status& status, const TransferOptions& options) {
  return options.route == TransferOptions::Route::kAuto && !absl::IsDeadlineExceeded(status);
}

absl::StatusOr<TransferReport> ShmUpload(Buffer::State& buffer, absl::string_view data,
                                         int64_t offset_bytes, const TransferOptions& options) {
  return Move(
      buffer, static_cast<int64_t>(data.size()), /*for_writing=*/true, options,
      [&](char* memory) { WideCopy(memory + offset_bytes, data.data(), data.size()); },
      [&](Staging& staging) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return Relay(buffer, staging, options).Upload(data, offset_bytes);
      });
}

absl::StatusOr<TransferReport> ShmDownload(Buffer::State& buffer, absl::Span<char> data,
                                           int64_t offset_bytes, const TransferOptions& options) {
  return Move(
      buffer, static_cast<int64_t>(data.size()), /*for_writing=*/false, options,
      [&](char* memory) { WideCopy(data.data(), memory + offset_bytes, data.size()); },
      [&](Staging& staging) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return Relay(buffer, staging, options).Download(data, offset_bytes);
      });
}

}  // namespace gemmd::client
