// The bulk messages, read and written without protobuf: `data` is never copied into a message. The
// bytes on the wire are exactly UploadRequest's and DownloadResponse's, so any protobuf client can
// speak to us.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace gemmd::server {

// An UploadRequest. `data` points into `memory`, in order.
struct UploadChunk {
  // Where it is: a ByteBuffer that is moved is copied, and with it what lies in it itself, as the
  // bytes of small slices do.
  std::unique_ptr<grpc::ByteBuffer> memory;
  std::string session_id = {};
  std::string buffer_id = {};
  int64_t offset_bytes = 0;
  uint32_t crc32c = 0;
  int64_t data_bytes = 0;
  std::vector<absl::Span<const std::byte>> data = {};
};

// INVALID_ARGUMENT for bytes that are not an UploadRequest. Unknown fields are skipped, the last of
// a repeated field counts, as in protobuf.
absl::StatusOr<UploadChunk> ParseUploadChunk(const grpc::ByteBuffer& message);

// The bytes of a DownloadResponse around `data`.
grpc::ByteBuffer MakeDownloadChunk(int64_t offset_bytes, uint32_t crc32c, grpc::Slice data);

// CRC32C (Castagnoli) of `data` going on from `crc`, the CRC of what came before; 0 at the start.
uint32_t ExtendCrc32c(uint32_t crc, absl::Span<const std::byte> data);

}  // namespace gemmd::server
