#include "client/cpp/internal/transfers/download_chunk.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/wire.h"
#include "google/protobuf/io/coded_stream.h"

namespace gemmd::client {
namespace {

// Tag and value of offset (1 + 10 bytes), checksum (1 + 4), tag and length of data (1 + 10).
constexpr size_t kMostHeader = 27;

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
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(head.data()),
                                            static_cast<int>(head.size()));
  while (const uint32_t tag = in.ReadTag()) {
    uint64_t value = 0;
    if (tag == wire::Tag(v1::DownloadResponse::kOffsetBytesFieldNumber, wire::kVarint)) {
      if (!in.ReadVarint64(&value)) return std::nullopt;
      chunk.offset_bytes = static_cast<int64_t>(value);
    } else if (tag == wire::Tag(v1::DownloadResponse::kCrc32CFieldNumber, wire::kFixed32)) {
      if (!in.ReadLittleEndian32(&chunk.crc32c)) return std::nullopt;
    } else if (tag == wire::Tag(v1::DownloadResponse::kDataFieldNumber, wire::kBytes)) {
      if (!in.ReadVarint64(&value)) return std::nullopt;
      chunk.data_at = in.CurrentPosition();
      chunk.data_bytes = static_cast<int64_t>(value);
      if (value != total - static_cast<size_t>(chunk.data_at)) return std::nullopt;
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
