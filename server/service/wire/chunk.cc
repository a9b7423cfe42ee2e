#include "server/service/wire/chunk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#if __has_include(<isa-l/crc.h>)
#include <isa-l/crc.h>
#else
#include <isa-l.h>
#endif

#include "gemmd/v1/buffer_service.pb.h"
#include "google/protobuf/io/coded_stream.h"

namespace gemmd::server {
namespace {

// Wire types of the protobuf encoding (https://protobuf.dev/programming-guides/encoding).
enum WireType { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

absl::Status Malformed() {
  return absl::InvalidArgumentError(
      "the message is not an UploadRequest; check that client and server speak gemmd.v1");
}

// Reads across slice boundaries.
class SliceReader {
 public:
  explicit SliceReader(const std::vector<grpc::Slice>& slices) : slices_(slices) { Skip(0); }

  bool AtEnd() const { return index_ == slices_.size(); }

  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (AtEnd()) return false;
      const uint8_t byte = slices_[index_].begin()[at_];
      Skip(1);
      *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  // The next `bytes` bytes, in pieces.
  bool Take(uint64_t bytes, std::vector<absl::Span<const std::byte>>* pieces) {
    while (bytes > 0) {
      if (AtEnd()) return false;
      const uint64_t here = std::min<uint64_t>(bytes, slices_[index_].size() - at_);
      if (pieces != nullptr) {
        pieces->push_back(absl::MakeConstSpan(
            reinterpret_cast<const std::byte*>(slices_[index_].begin()) + at_, here));
      }
      Skip(here);
      bytes -= here;
    }
    return true;
  }

  bool Copy(uint64_t bytes, void* out) {
    std::vector<absl::Span<const std::byte>> pieces;
    if (!Take(bytes, &pieces)) return false;
    char* to = static_cast<char*>(out);
    for (const auto& piece : pieces) {
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
    return true;
  }

 private:
  void Skip(size_t bytes) {
    at_ += bytes;
    while (index_ < slices_.size() && at_ == slices_[index_].size()) {
      ++index_;
      at_ = 0;
    }
  }

  const std::vector<grpc::Slice>& slices_;
  size_t index_ = 0;
  size_t at_ = 0;
};

// Ids are 16 bytes; anything longer than this is refused before it is copied.
constexpr uint64_t kMaxIdBytes = 64;

bool ReadId(SliceReader& reader, std::string* id) {
  uint64_t length = 0;
  if (!reader.Varint(&length) || length > kMaxIdBytes) return false;
  id->resize(length);
  return reader.Copy(length, id->data());
}

bool SkipField(SliceReader& reader, int wire_type) {
  uint64_t value = 0;
  switch (wire_type) {
    case kVarint:
      return reader.Varint(&value);
    case kFixed64:
      return reader.Take(8, nullptr);
    case kFixed32:
      return reader.Take(4, nullptr);
    case kLength:
      return reader.Varint(&value) && reader.Take(value, nullptr);
    default:
      return false;
  }
}

bool ReadField(SliceReader& reader, uint64_t tag, UploadChunk& chunk) {
  using R = v1::UploadRequest;
  uint64_t value = 0;
  switch (tag) {
    case R::kSessionIdFieldNumber << 3 | kLength:
      return ReadId(reader, &chunk.session_id);
    case R::kBufferIdFieldNumber << 3 | kLength:
      return ReadId(reader, &chunk.buffer_id);
    case R::kOffsetBytesFieldNumber << 3 | kVarint:
      if (!reader.Varint(&value)) return false;
      chunk.offset_bytes = static_cast<int64_t>(value);
      return true;
    case R::kCrc32CFieldNumber << 3 | kFixed32:
      return reader.Copy(4, &chunk.crc32c);
    case R::kDataFieldNumber << 3 | kLength:
      if (!reader.Varint(&value)) return false;
      chunk.data.clear();
      chunk.data_bytes = static_cast<int64_t>(value);
      return reader.Take(value, &chunk.data);
    default:
      return tag >> 3 != 0 && SkipField(reader, tag & 7);
  }
}

}  // namespace

absl::StatusOr<UploadChunk> ParseUploadChunk(const grpc::ByteBuffer& message) {
  UploadChunk chunk;
  if (!message.Dump(&chunk.slices).ok()) return Malformed();
  SliceReader reader(chunk.slices);
  while (!reader.AtEnd()) {
    uint64_t tag = 0;
    if (!reader.Varint(&tag) || tag > UINT32_MAX || !ReadField(reader, tag, chunk)) {
      return Malformed();
    }
  }
  return chunk;
}

grpc::ByteBuffer MakeDownloadChunk(int64_t offset_bytes, uint32_t crc32c, grpc::Slice data) {
  using R = v1::DownloadResponse;
  uint8_t header[64];
  uint8_t* at = header;
  const auto varint = [&](uint64_t value) {
    at = google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(value, at);
  };
  varint(R::kOffsetBytesFieldNumber << 3 | kVarint);
  varint(static_cast<uint64_t>(offset_bytes));
  varint(R::kCrc32CFieldNumber << 3 | kFixed32);
  at = google::protobuf::io::CodedOutputStream::WriteLittleEndian32ToArray(crc32c, at);
  varint(R::kDataFieldNumber << 3 | kLength);
  varint(data.size());
  const grpc::Slice slices[2] = {grpc::Slice(header, at - header), std::move(data)};
  return grpc::ByteBuffer(slices, 2);
}

uint32_t ExtendCrc32c(uint32_t crc, absl::Span<const std::byte> data) {
  // ISA-L takes and gives the register before the final inversion. Its buffer is not const but is
  // only read.
  uint32_t state = ~crc;
  while (!data.empty()) {
    const size_t part = std::min<size_t>(data.size(), 1 << 30);
    state = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data.data())),
                        static_cast<int>(part), state);
    data.remove_prefix(part);
  }
  return ~state;
}

}  // namespace gemmd::server
