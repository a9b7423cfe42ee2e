#include "server/guard/frame_reader.h"

#include <gtest/gtest.h>

#include <string>

namespace gemmd::guard {
namespace {

constexpr int kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kWindowUpdate = 8;
constexpr int kContinuation = 9;
constexpr int kEndStream = 1, kAck = 1, kEndHeaders = 4;

std::string FrameBytes(int type, int flags, uint32_t stream, size_t bytes) {
  std::string frame;
  for (int shift = 16; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(bytes >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(stream >> shift));
  return frame + std::string(bytes, 'x');
}

class FrameReaderTest : public testing::Test {
 protected:
  static constexpr int kMaxStreams = 10;

  void SetUp() override { EXPECT_EQ(Read(std::string(24, 'P')), Breach::kNone); }
  Breach Read(std::string_view bytes) { return reader_.Read(bytes, seen_); }

  FrameReader reader_{kMaxStreams};
  Seen seen_;
};

TEST_F(FrameReaderTest, CountsTheSameHoweverTheBytesAreCut) {
  const std::string bytes = FrameBytes(kSettings, 0, 0, 12) +
                            FrameBytes(kHeaders, kEndHeaders, 1, 40) +
                            FrameBytes(kData, 0, 1, 2000) + FrameBytes(kReset, 0, 3, 4) +
                            FrameBytes(kPing, 0, 0, 8) + FrameBytes(kData, 0, 1, 0);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{9}, bytes.size()}) {
    FrameReader reader(kMaxStreams);
    Seen seen;
    const std::string all = std::string(24, 'P') + bytes;
    for (size_t at = 0; at < all.size(); at += piece) {
      EXPECT_EQ(reader.Read(std::string_view(all).substr(at, piece), seen), Breach::kNone);
    }
    EXPECT_EQ(seen.resets, 1);
    EXPECT_EQ(seen.control_frames, 3);  // SETTINGS, PING, empty DATA
    EXPECT_EQ(reader.unfinished_bytes(),
              FrameReader::kStreamBytes + 2000 + FrameReader::kLeastDataBytes);
  }
}

TEST_F(FrameReaderTest, AHeaderBlockMayHave64KiB) {
  const size_t half = FrameReader::kMaxHeaderBlockBytes / 2 - 9;
  EXPECT_EQ(Read(FrameBytes(kHeaders, 0, 1, half)), Breach::kNone);
  EXPECT_EQ(Read(FrameBytes(kContinuation, kEndHeaders, 1, half)), Breach::kNone);
  // The next one begins anew.
  EXPECT_EQ(Read(FrameBytes(kHeaders, 0, 3, half)), Breach::kNone);
  EXPECT_EQ(Read(FrameBytes(kContinuation, 0, 3, half)), Breach::kNone);
  EXPECT_EQ(Read(FrameBytes(kContinuation, kEndHeaders, 3, 0)), Breach::kHeaderBlock);
}

TEST_F(FrameReaderTest, ALongBlockIsABreachBeforeItsBytesCome) {
  EXPECT_EQ(Read(FrameBytes(kHeaders, 0, 1, 1 << 20).substr(0, 9)), Breach::kHeaderBlock);
}

TEST_F(FrameReaderTest, StreamsAreBoundedUntilTheServersSettingsAreAcknowledged) {
  const auto begin = [&](int from, int count) {
    Breach breach = Breach::kNone;
    for (int i = 0; i < count && breach == Breach::kNone; ++i) {
      breach = Read(FrameBytes(kHeaders, kEndHeaders | kEndStream, 2 * (from + i) + 1, 10));
    }
    return breach;
  };
  EXPECT_EQ(begin(0, kMaxStreams), Breach::kNone);
  EXPECT_EQ(begin(kMaxStreams, 1), Breach::kStreams);
}

TEST_F(FrameReaderTest, AfterThatGrpcBoundsThem) {
  EXPECT_EQ(Read(FrameBytes(kSettings, kAck, 0, 0)), Breach::kNone);
  for (uint32_t stream = 1; stream < 20 * kMaxStreams; stream += 2) {
    EXPECT_EQ(Read(FrameBytes(kHeaders, kEndHeaders | kEndStream, stream, 10)), Breach::kNone);
  }
}

TEST_F(FrameReaderTest, WhatHasEndedOrWasResetIsNotUnfinished) {
  Read(FrameBytes(kHeaders, kEndHeaders, 1, 10) + FrameBytes(kData, 0, 1, 5000));
  Read(FrameBytes(kHeaders, kEndHeaders, 3, 10) + FrameBytes(kData, 0, 3, 2000));
  Read(FrameBytes(kHeaders, kEndHeaders, 5, 10) + FrameBytes(kData, 0, 5, 3000));
  Read(FrameBytes(kHeaders, kEndHeaders | kEndStream, 7, 10));
  EXPECT_EQ(reader_.unfinished_bytes(), 3 * FrameReader::kStreamBytes + 10000);
  Read(FrameBytes(kData, kEndStream, 1, 100));
  Read(FrameBytes(kReset, 0, 3, 4));
  EXPECT_EQ(reader_.unfinished_bytes(), FrameReader::kStreamBytes + 3000);
  Read(FrameBytes(kHeaders, kEndHeaders | kEndStream, 5, 10));  // trailers
  EXPECT_EQ(reader_.unfinished_bytes(), 0);
}

TEST_F(FrameReaderTest, StopsCountingWhenTold) {
  Read(FrameBytes(kHeaders, kEndHeaders, 1, 10) + FrameBytes(kData, 0, 1, 5000));
  reader_.StopCounting();
  EXPECT_EQ(reader_.unfinished_bytes(), 0);
  Read(FrameBytes(kData, 0, 1, 5000) + FrameBytes(kHeaders, kEndHeaders, 3, 10));
  EXPECT_EQ(reader_.unfinished_bytes(), 0);
}

TEST_F(FrameReaderTest, ThinDataCountsForMoreThanItsBytes) {
  Read(FrameBytes(kHeaders, kEndHeaders, 1, 10));
  for (int i = 0; i < 100; ++i) Read(FrameBytes(kData, 0, 1, 1));
  EXPECT_EQ(seen_.data_bytes, 100 * FrameReader::kLeastDataBytes);
  EXPECT_EQ(reader_.unfinished_bytes(),
            FrameReader::kStreamBytes + 100 * FrameReader::kLeastDataBytes);
  Read(FrameBytes(kData, kEndStream, 1, 1));  // of which each call has one
  EXPECT_EQ(seen_.data_bytes, 100 * FrameReader::kLeastDataBytes + 1);
}

TEST_F(FrameReaderTest, CountsWindowUpdatesAndTrailers) {
  Read(FrameBytes(kHeaders, kEndHeaders, 1, 10) + FrameBytes(kHeaders, kEndHeaders, 1, 10));
  EXPECT_EQ(seen_.calls, 1);
  EXPECT_EQ(seen_.control_frames, 1);
  Read(FrameBytes(kWindowUpdate, 0, 0, 4) + FrameBytes(kWindowUpdate, 0, 1, 4));
  EXPECT_EQ(seen_.window_updates, 2);
}

TEST_F(FrameReaderTest, DataOfAStreamThatIsNotThereCountsForNothing) {
  Read(FrameBytes(kData, 0, 9, 5000));
  EXPECT_EQ(reader_.unfinished_bytes(), 0);
}

}  // namespace
}  // namespace gemmd::guard
