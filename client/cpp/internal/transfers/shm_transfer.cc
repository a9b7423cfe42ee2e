#include "client/cpp/internal/transfers/shm_transfer.h"

#include <functional>
#include <utility>

#include "absl/time/clock.h"
#include "client/cpp/internal/calls/relay.h"
#include "client/cpp/internal/connect/buffer_state.h"
#include "client/cpp/internal/transfers/staging.h"
#include "client/cpp/internal/transfers/wide_copy.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

constexpr size_t kLeastStaged = 1 << 20;  // below, one gRPC message costs less than a Copy op

// Sees to it that `staging` has `bytes`, or what a transfer can do with where the daemon gives no
// more.
absl::Status MakeRoom(Buffer::State& buffer, Staging& staging, int64_t bytes,
                      const TransferOptions& options) ABSL_EXCLUSIVE_LOCKS_REQUIRED(staging.mu) {
  if (staging.no_more) bytes = Relay::kStagingBytes;
  if (staging.made && staging.made->memory.size_bytes() >= bytes) return absl::OkStatus();
  absl::StatusOr<StagingMemory> made =
      MakeStaging(*buffer.session, buffer.device, bytes, "client staging", options.call);
  if (made.ok()) {
    if (staging.made) buffer.session->reaper().DropBuffer(staging.made->buffer);
    staging.made = *std::move(made);
    return absl::OkStatus();
  }
  if (bytes == Relay::kStagingBytes || !absl::IsResourceExhausted(made.status())) {
    return made.status();
  }
  staging.no_more = true;
  return MakeRoom(buffer, staging, Relay::kStagingBytes, options);
}

// `direct` moves the bytes of a mapped buffer, `relayed` those of a device's.
absl::StatusOr<TransferReport> Move(
    Buffer::State& buffer, int64_t size, bool for_writing, const TransferOptions& options,
    const std::function<void(char* memory)>& direct,
    const std::function<absl::Status(const StagingMemory& staging)>& relayed) {
  const absl::Time start = absl::Now();
  if (buffer.memory_kind == MemoryKind::kHostShared) {
    GEMMD_ASSIGN_OR_RETURN(const absl::Span<char> memory, buffer.Map(for_writing));
    direct(memory.data());
    if (options.progress) options.progress(size, size);
  } else {
    Staging& staging = buffer.session->StagingFor(buffer.device);
    absl::MutexLock lock(&staging.mu);
    GEMMD_RETURN_IF_ERROR(MakeRoom(buffer, staging, Relay::StagingBytesFor(size), options));
    if (absl::Status status = relayed(*staging.made); !status.ok()) {
      // A Copy that nobody waits for any more may still come: not into the next transfer's bytes.
      buffer.session->reaper().DropBuffer(staging.made->buffer);
      staging.made.reset();
      return status;
    }
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
      [&](const StagingMemory& staging) {
        return Relay({buffer, offset_bytes, staging.buffer, staging.memory.span()}, options)
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
      [&](const StagingMemory& staging) {
        return Relay({buffer, offset_bytes, staging.buffer, staging.memory.span()}, options)
            .Download(data);
      });
}

}  // namespace gemmd::client
