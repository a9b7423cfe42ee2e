#include "server/service/wire/chunk.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <utility>

#if __has_include(<isa-l/crc.h>)
#include <isa-l/crc.h>
#else
#include <isa-l.h>
#endif

#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/wire.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace gemmd::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using wire::kBytes;
using wire::kFixed32;
using wire::kVarint;
using wire::Tag;

// Ids are 16 bytes; anything longer than this is refused before it is copied.
constexpr int kMaxIdBytes = 64;

bool ReadId(CodedInputStream& in, std::string& id) {
  int size = 0;
  return in.ReadVarintSizeAsInt(&size) && size <= kMaxIdBytes && in.ReadString(&id, size);
}

bool ReadData(CodedInputStream& in, UploadChunk& chunk) {
  int left = 0;
  if (!in.ReadVarintSizeAsInt(&left)) return false;
  chunk.data.clear();
  chunk.data_bytes = left;
  while (left > 0) {
    const void* run = nullptr;
    int length = 0;
    if (!in.GetDirectBufferPointer(&run, &length)) return false;
    const int part = std::min(left, length);
    chunk.data.push_back(absl::MakeConstSpan(static_cast<const std::byte*>(run), part));
    in.Skip(part);
    left -= part;
  }
  return true;
}

bool ReadField(CodedInputStream& in, uint32_t tag, UploadChunk& chunk) {
  using R = v1::UploadRequest;
  switch (tag) {
    case Tag(R::kSessionIdFieldNumber, kBytes):
      return ReadId(in, chunk.session_id);
    case Tag(R::kBufferIdFieldNumber, kBytes):
      return ReadId(in, chunk.buffer_id);
    case Tag(R::kOffsetBytesFieldNumber, kVarint): {
      uint64_t value = 0;
      if (!in.ReadVarint64(&value)) return false;
      chunk.offset_bytes = static_cast<int64_t>(value);
      return true;
    }
    case Tag(R::kCrc32CFieldNumber, kFixed32):
      return in.ReadLittleEndian32(&chunk.crc32c);
    case Tag(R::kDataFieldNumber, kBytes):
      return ReadData(in, chunk);
    default:
      return WireFormatLite::SkipField(&in, tag);
  }
}

bool ReadFields(CodedInputStream& in, UploadChunk& chunk) {
  while (const uint32_t tag = in.ReadTag()) {
    if (!ReadField(in, tag, chunk)) return false;
  }
  return in.ConsumedEntireMessage();
}

}  // namespace

absl::StatusOr<UploadChunk> ParseUploadChunk(const grpc::ByteBuffer& message) {
  UploadChunk chunk{.memory = std::make_unique<grpc::ByteBuffer>(message)};
  bool read = chunk.memory->Valid();
  if (read) {
    grpc::ProtoBufferReader reader(chunk.memory.get());
    CodedInputStream in(&reader);
    read = ReadFields(in, chunk);
  }
  if (read) return chunk;
  return absl::InvalidArgumentError(
      "the message is not an UploadRequest; check that client and server speak gemmd.v1");
}

grpc::ByteBuffer MakeDownloadChunk(int64_t offset_bytes, uint32_t crc32c, grpc::Slice data) {
  using R = v1::DownloadResponse;
  uint8_t header[64];
  uint8_t* at = header;
  const auto varint = [&](uint64_t value) {
    at = CodedOutputStream::WriteVarint64ToArray(value, at);
  };
  varint(Tag(R::kOffsetBytesFieldNumber, kVarint));
  varint(static_cast<uint64_t>(offset_bytes));
  varint(Tag(R::kCrc32CFieldNumber, kFixed32));
  at = CodedOutputStream::WriteLittleEndian32ToArray(crc32c, at);
  varint(Tag(R::kDataFieldNumber, kBytes));
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
