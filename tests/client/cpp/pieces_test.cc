// The small pieces: handles, names, checksums, statuses, pauses, wire forms.

#include <gmock/gmock.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/cpp/errors.h"
#include "client/cpp/health.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "client/cpp/internal/connect/backoff.h"
#include "client/cpp/internal/transfers/crc32c.h"
#include "client/cpp/internal/transfers/download_chunk.h"
#include "client/cpp/types.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/wire.h"

namespace gemmd::client {
namespace {

TEST(HandleTest, HexAndBytesAreTheSameHandle) {
  const Handle handle = *Handle::FromBytes("0123456789abcdef");
  EXPECT_EQ(handle.ToHex(), "30313233343536373839616263646566");
  EXPECT_EQ(*Handle::FromHex(handle.ToHex()), handle);
  EXPECT_FALSE(handle.empty());
  EXPECT_TRUE(Handle().empty());
}

TEST(HandleTest, RefusesWrongLengthsAndDigits) {
  EXPECT_FALSE(Handle::FromBytes("short").ok());
  EXPECT_FALSE(Handle::FromHex("30").ok());
  EXPECT_FALSE(Handle::FromHex(std::string(32, 'g')).ok());
}

TEST(DTypeTest, NamesParseBack) {
  for (DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3, DType::kE5M2, DType::kI8}) {
    EXPECT_EQ(*ParseDType(Name(dtype)), dtype);
    EXPECT_GT(SizeBytes(dtype), 0);
  }
  EXPECT_FALSE(ParseDType("f64").ok());
  EXPECT_FALSE(ParseDType("unspecified").ok());
  EXPECT_EQ(SizeBytes(static_cast<DType>(99)), 0) << "a newer server's type";
}

TEST(Crc32cTest, HasTheStandardCheckValueAndChains) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c("6789", Crc32c("12345")), 0xE3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(WireTest, NestedLengthsOfEveryWidthParse) {
  for (size_t size : {0, 1, 100, 127, 128, 16383, 16384, 3000000}) {
    std::string message;
    {
      wire::Nested nested(message, v1::ListBuffersResponse::kBuffersFieldNumber);
      wire::AppendBytes(message, v1::Buffer::kLabelFieldNumber, std::string(size, 'x'));
    }
    v1::ListBuffersResponse parsed;
    ASSERT_TRUE(parsed.ParseFromString(message)) << size;
    EXPECT_EQ(parsed.buffers(0).label().size(), size);
  }
}

TEST(BreakTest, OnlyTheTransportsOwnWordsAreBreaks) {
  EXPECT_EQ(BreakOf(absl::OkStatus()), Break::kNone);
  EXPECT_EQ(BreakOf(absl::UnavailableError("Socket closed")), Break::kTorn);
  EXPECT_EQ(BreakOf(absl::UnavailableError("failed to connect to all addresses; last error: x")),
            Break::kUnsent);
  EXPECT_EQ(BreakOf(absl::UnknownError("Stream removed")), Break::kTorn);
  EXPECT_EQ(BreakOf(absl::InternalError("Received RST_STREAM with error code 2")), Break::kTorn);
  EXPECT_EQ(BreakOf(absl::InternalError("a bug")), Break::kNone);
  absl::Status draining = absl::UnavailableError("draining");
  SetReason(draining, "DRAINING");
  EXPECT_EQ(BreakOf(draining), Break::kNone) << "a refusal, not a break";
}

TEST(ErrorsTest, ReasonAndRequestIdTravelWithTheStatus) {
  absl::Status status = absl::NotFoundError("no such buffer");
  EXPECT_EQ(ReasonOf(status), "");
  SetReason(status, "BUFFER_GONE");
  SetRequestId(status, "r-17");
  EXPECT_EQ(ReasonOf(status), "BUFFER_GONE");
  EXPECT_EQ(RequestIdOf(status), "r-17");
  EXPECT_EQ(status.message(), "no such buffer");
}

TEST(BackoffTest, DoublesWithJitterUpToTheMostAndEnds) {
  Backoff backoff({.max_attempts = 5,
                   .initial_backoff = absl::Milliseconds(10),
                   .max_backoff = absl::Milliseconds(30)});
  for (int most_ms : {10, 20, 30, 30}) {
    const auto pause = backoff.Next(absl::InfiniteFuture());
    ASSERT_TRUE(pause.has_value());
    EXPECT_GE(*pause, absl::Milliseconds(most_ms) / 2);
    EXPECT_LE(*pause, absl::Milliseconds(most_ms));
  }
  EXPECT_FALSE(backoff.Next(absl::InfiniteFuture()).has_value());
  backoff.Reset();
  EXPECT_LE(*backoff.Next(absl::InfiniteFuture()), absl::Milliseconds(10));
}

TEST(BackoffTest, NeverWaitsPastTheDeadline) {
  Backoff backoff({.max_attempts = 5, .initial_backoff = absl::Seconds(10)});
  EXPECT_FALSE(backoff.Next(absl::Now() + absl::Seconds(1)).has_value());
}

std::vector<grpc::Slice> Cut(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) slices.emplace_back(bytes.substr(at, piece));
  return slices;
}

TEST(DownloadChunkTest, IsFoundHoweverTheMessageIsCutIntoSlices) {
  v1::DownloadResponse message;
  message.set_offset_bytes(INT64_C(1) << 40);
  message.set_crc32c(0x12345678);
  for (int i = 0; i < 1000; ++i) message.mutable_data()->push_back(static_cast<char>(i));
  const std::string bytes = message.SerializeAsString();
  for (size_t piece : {1, 3, 26, 27, 28, 100, 5000}) {
    const std::vector<grpc::Slice> slices = Cut(bytes, piece);
    const auto chunk = ParseDownloadChunk(slices);
    ASSERT_TRUE(chunk.has_value()) << piece;
    EXPECT_EQ(chunk->offset_bytes, message.offset_bytes());
    EXPECT_EQ(chunk->crc32c, message.crc32c());
    ASSERT_EQ(chunk->data_bytes, 1000);
    std::string data(1000, '?');
    CopyChunkData(slices, *chunk, data.data());
    EXPECT_EQ(data, message.data());
  }
}

TEST(DownloadChunkTest, RefusesEveryTruncationAndWhatIsNoChunk) {
  v1::DownloadResponse message;
  message.set_offset_bytes(77);
  message.set_crc32c(1);
  message.set_data("some data");
  const std::string bytes = message.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ParseDownloadChunk(Cut(bytes.substr(0, size), 4)).has_value()) << size;
  }
  EXPECT_FALSE(ParseDownloadChunk(Cut(bytes + "more", 64)).has_value());
  EXPECT_FALSE(ParseDownloadChunk(Cut(std::string(64, '\xff'), 64)).has_value());
}

TEST(HealthTest, MessagesAreThoseOfTheHealthProtocol) {
  EXPECT_EQ(EncodeHealthRequest("cpu:0"), std::string("\x0a\x05") + "cpu:0");
  EXPECT_EQ(EncodeHealthRequest(""), "");
  EXPECT_EQ(*DecodeHealthResponse("\x08\x01"), Health::kServing);
  EXPECT_EQ(*DecodeHealthResponse("\x08\x02"), Health::kNotServing);
  EXPECT_EQ(*DecodeHealthResponse(""), Health::kUnknown);
  EXPECT_FALSE(DecodeHealthResponse("\x08\x09").ok());
  EXPECT_FALSE(DecodeHealthResponse("something else").ok());
}

}  // namespace
}  // namespace gemmd::client
