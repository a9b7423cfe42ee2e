#include "client/cpp/shm_transfer.h"

#include <functional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "client/cpp/buffer_state.h"
#include "client/cpp/call.h"
#include "client/cpp/relay.h"
#include "client/cpp/wide_copy.h"

namespace gemmd::client {
namespace {

constexpr size_t kLeastStaged = 1 << 20;  // below, one gRPC message costs less than a Copy op

absl::Status EnsureStaging(const Buffer::State& buffer, Staging& staging)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(staging.mu) {
  if (staging.memory.size_bytes() > 0) return absl::OkStatus();
  SessionCore& session = *buffer.session;
  v1::CreateBufferRequest request;
  request.set_session_id(session.id());
  request.set_size_bytes(Relay::kStagingBytes);
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
      FetchMemory(session, *id, Relay::kStagingBytes, /*writable=*/true);
  if (!memory.ok()) {
    session.reaper().DropBuffer(*id);
    return memory.status();
  }
  staging.buffer = *id;
  staging.memory = *std::move(memory);
  return absl::OkStatus();
}

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
      [&](char* memory) {
        WideCopy(memory + offset_bytes, data.data(), data.size(), options.copy_threads);
      },
      [&](Staging& staging) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return Relay({buffer, offset_bytes, staging.buffer, staging.memory.span().data()}, options)
            .Upload(data);
      });
}

absl::StatusOr<TransferReport> ShmDownload(Buffer::State& buffer, absl::Span<char> data,
                                           int64_t offset_bytes, const TransferOptions& options) {
  return Move(
      buffer, static_cast<int64_t>(data.size()), /*for_writing=*/false, options,
      [&](char* memory) {
        WideCopy(data.data(), memory + offset_bytes, data.size(), options.copy_threads);
      },
      [&](Staging& staging) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return Relay({buffer, offset_bytes, staging.buffer, staging.memory.span().data()}, options)
            .Download(data);
      });
}

}  // namespace gemmd::client
