#include "client/cpp/internal/transfers/download_chunk.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/wire.h"

namespace gemmd::client {
namespace {

// Tag and value of offset (1 + 10 bytes), checksum (1 + 4), tag and length of data (1 + 10).
constexpr size_t kMostHeader = 27;

std::optional<uint64_t> TakeVarint(absl::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<DownloadChunk> ParseDownloadChunk(absl::Span<const grpc::Slice> slices) {
  std::string head;
  size_t total = 0;
  for (const grpc::Slice& slice : slices) {
    const size_t part = std::min(slice.size(), kMostHeader - head.size());
    head.append(reinterpret_cast<const char*>(slice.begin()), part);
    total += slice.size();
  }
  DownloadChunk chunk;
  absl::string_view rest = head;
  while (!rest.empty()) {
    const std::optional<uint64_t> tag = TakeVarint(rest);
    if (tag == (v1::DownloadResponse::kOffsetBytesFieldNumber << 3 | wire::kVarint)) {
      const std::optional<uint64_t> offset = TakeVarint(rest);
      if (!offset) return std::nullopt;
      chunk.offset_bytes = static_cast<int64_t>(*offset);
    } else if (tag == (v1::DownloadResponse::kCrc32CFieldNumber << 3 | wire::kFixed32)) {
      if (rest.size() < sizeof(chunk.crc32c)) return std::nullopt;
      std::memcpy(&chunk.crc32c, rest.data(), sizeof(chunk.crc32c));
      rest.remove_prefix(sizeof(chunk.crc32c));
    } else if (tag == (v1::DownloadResponse::kDataFieldNumber << 3 | wire::kBytes)) {
      const std::optional<uint64_t> size = TakeVarint(rest);
      const size_t data_at = head.size() - rest.size();
      if (!size || *size != total - data_at) return std::nullopt;
      chunk.data_at = static_cast<int64_t>(data_at);
      chunk.data_bytes = static_cast<int64_t>(*size);
      return chunk;
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

void CopyChunkData(absl::Span<const grpc::Slice> slices, const DownloadChunk& chunk, char* to) {
  auto skip = static_cast<size_t>(chunk.data_at);
  for (const grpc::Slice& slice : slices) {
    const size_t here = std::min(skip, slice.size());
    skip -= here;
    std::memcpy(to, slice.begin() + here, slice.size() - here);
    to += slice.size() - here;
  }
}

}  // namespace gemmd::client
