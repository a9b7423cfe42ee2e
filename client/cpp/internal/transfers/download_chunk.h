// A DownloadResponse taken apart where it lies, in gRPC's slices, so that its data is copied once:
// to where the caller wants it.

#pragma once

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <optional>

#include "absl/types/span.h"

namespace gemmd::client {

struct DownloadChunk {
  int64_t offset_bytes = 0;
  uint32_t crc32c = 0;
  int64_t data_at = 0;  // where in the message `data` starts
  int64_t data_bytes = 0;
};

// None unless the message is offset, checksum and then data to its end, as protobuf writes it.
std::optional<DownloadChunk> ParseDownloadChunk(absl::Span<const grpc::Slice> slices);

// `to` has room for chunk.data_bytes.
void CopyChunkData(absl::Span<const grpc::Slice> slices, const DownloadChunk& chunk, char* to);

}  // namespace gemmd::client
