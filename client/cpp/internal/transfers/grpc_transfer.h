// Upload and Download by gRPC streams, with checksums and resumption.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cpp/buffer.h"
#include "client/cpp/transfer.h"

namespace gemmd::client {

// Offset and size lie in the buffer. Neither returns before gRPC has let go of the caller's memory.
absl::StatusOr<TransferReport> GrpcUpload(const Buffer::State& buffer, absl::string_view data,
                                          int64_t offset_bytes, const TransferOptions& options);
absl::StatusOr<TransferReport> GrpcDownload(const Buffer::State& buffer, absl::Span<char> data,
                                            int64_t offset_bytes, const TransferOptions& options);

}  // namespace gemmd::client
