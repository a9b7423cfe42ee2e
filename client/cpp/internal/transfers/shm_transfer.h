// Upload and Download through memory shared with a daemon on this host.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cpp/buffer.h"
#include "client/cpp/transfer.h"

namespace gemmd::client {

// Whether to try: kHostShared buffers always, device memory from 1 MiB on, and either only while
// the share socket can be reached. Route::kShm tries whatever the size.
bool WorthSharing(const Buffer::State& buffer, size_t size, const TransferOptions& options);

// Whether a failed try goes by gRPC instead: what concerns the sharing, not the buffer or the time.
bool MayFallBack(const absl::Status& status, const TransferOptions& options);

absl::StatusOr<TransferReport> ShmUpload(Buffer::State& buffer, absl::string_view data,
                                         int64_t offset_bytes, const TransferOptions& options);
absl::StatusOr<TransferReport> ShmDownload(Buffer::State& buffer, absl::Span<char> data,
                                           int64_t offset_bytes, const TransferOptions& options);

}  // namespace gemmd::client
