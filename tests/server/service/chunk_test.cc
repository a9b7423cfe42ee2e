#include "server/service/wire/chunk.h"

#include <random>
#include <string>
#include <vector>

#include "gemmd/v1/buffer_service.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::server {
namespace {

grpc::ByteBuffer Message(const std::vector<std::string>& pieces) {
  std::vector<grpc::Slice> slices(pieces.begin(), pieces.end());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string Join(const std::vector<absl::Span<const std::byte>>& pieces) {
  std::string joined;
  for (const auto& piece : pieces) {
    joined.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return joined;
}

v1::UploadRequest Request() {
  v1::UploadRequest request;
  request.set_session_id(std::string(16, 's'));
  request.set_buffer_id(std::string(16, 'b'));
  request.set_offset_bytes(int64_t{1} << 40);
  request.set_crc32c(0xdeadbeef);
  request.set_data("some bytes of data");
  return request;
}

TEST(ChunkTest, Crc32cMatchesTheStandardsCheckValue) {
  const std::string text = "123456789";
  EXPECT_EQ(ExtendCrc32c(0, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()),
                                                text.size())),
            0xE3069283u);
}

TEST(ChunkTest, Crc32cGoesOnFromPieceToPiece) {
  std::mt19937 random(7);
  std::vector<std::byte> data(10007);
  for (auto& byte : data) byte = static_cast<std::byte>(random());
  const auto whole = absl::MakeConstSpan(data);
  for (size_t cut : {0ul, 1ul, 15ul, 4096ul, 10007ul}) {
    EXPECT_EQ(ExtendCrc32c(ExtendCrc32c(0, whole.first(cut)), whole.subspan(cut)),
              ExtendCrc32c(0, whole));
  }
}

TEST(ChunkTest, ReadsWhatProtobufWritesWhereverTheSlicesAreCut) {
  const std::string bytes = Request().SerializeAsString();
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto chunk = ParseUploadChunk(Message({bytes.substr(0, cut), bytes.substr(cut)}));
    ASSERT_TRUE(chunk.ok()) << cut << chunk.status();
    EXPECT_EQ(chunk->session_id, std::string(16, 's'));
    EXPECT_EQ(chunk->buffer_id, std::string(16, 'b'));
    EXPECT_EQ(chunk->offset_bytes, int64_t{1} << 40);
    EXPECT_EQ(chunk->crc32c, 0xdeadbeefu);
    EXPECT_EQ(chunk->data_bytes, 18);
    EXPECT_EQ(Join(chunk->data), "some bytes of data");
  }
}

TEST(ChunkTest, ReadsOneByteSlices) {
  std::vector<std::string> pieces;
  for (char c : Request().SerializeAsString()) pieces.push_back(std::string(1, c));
  const auto chunk = ParseUploadChunk(Message(pieces));
  ASSERT_TRUE(chunk.ok());
  EXPECT_EQ(Join(chunk->data), "some bytes of data");
}

TEST(ChunkTest, AnEmptyMessageHasNoData) {
  const auto chunk = ParseUploadChunk(Message({""}));
  ASSERT_TRUE(chunk.ok());
  EXPECT_EQ(chunk->data_bytes, 0);
}

TEST(ChunkTest, RefusesEveryTruncationThatProtobufRefuses) {
  const std::string bytes = Request().SerializeAsString();
  for (size_t length = 0; length < bytes.size(); ++length) {
    v1::UploadRequest request;
    EXPECT_EQ(ParseUploadChunk(Message({bytes.substr(0, length)})).ok(),
              request.ParseFromString(bytes.substr(0, length)))
        << length;
  }
}

TEST(ChunkTest, RefusesLengthsThatLie) {
  // Field 5, length 2^62, three bytes.
  const std::string lie = "\x2a\x80\x80\x80\x80\x80\x80\x80\x80\x40xyz";
  EXPECT_EQ(ParseUploadChunk(Message({lie})).status().code(), absl::StatusCode::kInvalidArgument);
  // A session id of 200 bytes.
  EXPECT_FALSE(ParseUploadChunk(Message({"\x0a\xc8\x01" + std::string(200, 'x')})).ok());
  // A varint that never ends.
  EXPECT_FALSE(ParseUploadChunk(Message({"\x18" + std::string(11, '\xff')})).ok());
}

TEST(ChunkTest, SkipsFieldsItDoesNotKnow) {
  std::string bytes = Request().SerializeAsString();
  bytes += std::string("\x78\x05", 2);              // 15: varint
  bytes += std::string("\x7a\x03yes", 5);           // 15: three bytes
  bytes += std::string("\x79\0\0\0\0\0\0\0\0", 9);  // 15: fixed64
  bytes += std::string("\x7d\0\0\0\0", 5);          // 15: fixed32
  const auto chunk = ParseUploadChunk(Message({bytes}));
  ASSERT_TRUE(chunk.ok());
  EXPECT_EQ(Join(chunk->data), "some bytes of data");
}

TEST(ChunkTest, ADownloadChunkIsWhatProtobufReads) {
  const std::string data(100000, 'd');
  const grpc::ByteBuffer message = MakeDownloadChunk(77, 0x01020304, grpc::Slice(data));
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(message.Dump(&slices).ok());
  std::string bytes;
  for (const auto& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::DownloadResponse response;
  ASSERT_TRUE(response.ParseFromString(bytes));
  EXPECT_EQ(response.offset_bytes(), 77);
  EXPECT_EQ(response.crc32c(), 0x01020304u);
  EXPECT_EQ(response.data(), data);
}

}  // namespace
}  // namespace gemmd::server
