// Upload and Download by gRPC.

#include "client/cpp/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "client/cpp/client.h"
#include "tests/client/cpp/fake_daemon.h"
#include "tests/client/cpp/fake_reason.h"
#include "tests/client/cpp/random_bytes.h"

namespace gemmd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class TransferTest : public ::testing::Test {
 protected:
  Buffer Make(int64_t size_bytes) { return *session_.CreateBuffer({.size_bytes = size_bytes}); }

  std::string Downloaded(const Buffer& buffer, const TransferOptions& options = {}) {
    std::string bytes(static_cast<size_t>(buffer.size_bytes()), '?');
    const auto report = buffer.Download(absl::MakeSpan(bytes.data(), bytes.size()), 0, options);
    EXPECT_TRUE(report.ok()) << report.status();
    if (report.ok()) report_ = *report;
    return bytes;
  }

  FakeDaemon daemon_;
  Client client_ = ConnectTo(daemon_);
  Session session_ = *client_.OpenSession({.liveness = SessionOptions::Liveness::kNone});
  TransferReport report_;
};

TEST_F(TransferTest, BytesArriveThereAndBack) {
  for (size_t size : {1, 4095, 4096, 4097, 100000, 1 << 20, (5 << 20) + 3}) {
    const std::string bytes = RandomBytes(size);
    Buffer buffer = Make(static_cast<int64_t>(size));
    const auto up = buffer.Upload(bytes);
    ASSERT_TRUE(up.ok()) << up.status();
    EXPECT_EQ(up->path, TransferPath::kGrpc);
    EXPECT_EQ(up->bytes, static_cast<int64_t>(size));
    EXPECT_EQ(up->resumes, 0);
    EXPECT_EQ(daemon_.Bytes(buffer.id().bytes()), bytes);
    EXPECT_EQ(Downloaded(buffer), bytes);
  }
}

TEST_F(TransferTest, PartsGoWhereTheyBelong) {
  Buffer buffer = Make(10);
  ASSERT_TRUE(buffer.Upload("abc", 4).ok());
  EXPECT_EQ(daemon_.Bytes(buffer.id().bytes()),
            std::string(4, '\0') + "abc" + std::string(3, '\0'));
  char part[2];
  ASSERT_TRUE(buffer.Download(absl::MakeSpan(part), 5).ok());
  EXPECT_EQ(std::string(part, 2), "bc");
}

TEST_F(TransferTest, NothingToMoveIsNoCall) {
  Buffer buffer = Make(10);
  EXPECT_TRUE(buffer.Upload("", 10).ok());
  EXPECT_TRUE(buffer.Download({}, 0).ok());
  EXPECT_EQ(daemon_.Calls("Upload") + daemon_.Calls("Download"), 0);
}

TEST_F(TransferTest, RefusesWhatLiesOutside) {
  Buffer buffer = Make(10);
  EXPECT_EQ(buffer.Upload("abc", 8).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(buffer.Upload("abc", -1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(buffer.Upload("abc", INT64_MAX).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(buffer.Upload("abc", 0, {.chunk_bytes = 1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  char bytes[11];
  EXPECT_EQ(buffer.Download(absl::MakeSpan(bytes)).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Buffer().Upload("abc").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TransferTest, ProgressCountsChunks) {
  const std::string bytes = RandomBytes(10000);
  Buffer buffer = Make(10000);
  std::vector<std::pair<int64_t, int64_t>> seen;
  const TransferOptions options = {
      .chunk_bytes = 4096,
      .progress = [&](int64_t done, int64_t total) { seen.emplace_back(done, total); }};
  ASSERT_TRUE(buffer.Upload(bytes, 0, options).ok());
  EXPECT_THAT(seen, ElementsAre(Pair(4096, 10000), Pair(8192, 10000), Pair(10000, 10000)));
  seen.clear();
  Downloaded(buffer, options);
  EXPECT_THAT(seen, ElementsAre(Pair(4096, 10000), Pair(8192, 10000), Pair(10000, 10000)));
}

TEST_F(TransferTest, CutUploadResumesFromWhatWasCommitted) {
  const std::string bytes = RandomBytes(10 * kMiB);
  Buffer buffer = Make(10 * kMiB + 7);
  daemon_.CutUploads(/*after_chunks=*/4, /*times=*/2);
  const auto report = buffer.Upload(bytes, 7);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->resumes, 2);
  EXPECT_EQ(daemon_.Calls("Upload"), 3);
  EXPECT_EQ(daemon_.Bytes(buffer.id().bytes()).substr(7), bytes);
}

TEST_F(TransferTest, StaleCommittedBytesOfAnEarlierUploadAreNotTrusted) {
  const std::string before = RandomBytes(9 * kMiB);
  const std::string bytes = RandomBytes(9 * kMiB + 1);
  Buffer buffer = Make(9 * kMiB + 1);
  ASSERT_TRUE(buffer.Upload(before).ok());
  // Refused before the server looks at the stream: what it has committed is the earlier upload's.
  daemon_.Fail("Upload", Torn());
  const auto report = buffer.Upload(bytes);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(daemon_.Bytes(buffer.id().bytes()), bytes);
}

TEST_F(TransferTest, SmallCutUploadStartsOver) {
  const std::string bytes = RandomBytes(3 * kMiB);
  Buffer buffer = Make(3 * kMiB);
  daemon_.CutUploads(/*after_chunks=*/1);
  const auto report = buffer.Upload(bytes);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->resumes, 1);
  EXPECT_EQ(daemon_.Calls("GetBuffer"), 0);
  EXPECT_EQ(daemon_.Bytes(buffer.id().bytes()), bytes);
}

TEST_F(TransferTest, DamagedChunkIsSentAgain) {
  const std::string bytes = RandomBytes(9 * kMiB);
  Buffer buffer = Make(9 * kMiB);
  daemon_.DamageUpload(/*chunk=*/2);
  const auto report = buffer.Upload(bytes);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->resumes, 1);
  EXPECT_EQ(daemon_.Bytes(buffer.id().bytes()), bytes);
}

TEST_F(TransferTest, UploadThatNeverGetsOnEnds) {
  Buffer buffer = Make(9 * kMiB);
  daemon_.CutUploads(/*after_chunks=*/0, /*times=*/100);
  EXPECT_EQ(buffer.Upload(RandomBytes(9 * kMiB)).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(daemon_.Calls("Upload"), 4);
}

TEST_F(TransferTest, UploadIntoABusyBufferIsNotTriedAgain) {
  Buffer buffer = Make(100);
  daemon_.Fail("Upload", Signed(absl::AbortedError("another upload"), "UPLOAD_BUSY"));
  EXPECT_EQ(ReasonOf(buffer.Upload("abc").status()), "UPLOAD_BUSY");
  EXPECT_EQ(daemon_.Calls("Upload"), 1);
}

TEST_F(TransferTest, ResumedUploadOutwaitsItsOwnCutStream) {
  Buffer buffer = Make(3 * kMiB);
  const std::string bytes = RandomBytes(3 * kMiB);
  daemon_.Fail("Upload", Torn());
  daemon_.Fail("Upload", Signed(absl::AbortedError("another upload"), "UPLOAD_BUSY"));
  ASSERT_TRUE(buffer.Upload(bytes).ok());
  EXPECT_EQ(daemon_.Bytes(buffer.id().bytes()), bytes);
}

TEST_F(TransferTest, CutDownloadResumes) {
  const std::string bytes = RandomBytes(5 * kMiB);
  Buffer buffer = Make(5 * kMiB);
  ASSERT_TRUE(buffer.Upload(bytes).ok());
  daemon_.CutDownloads(/*after_chunks=*/2, /*times=*/2);
  EXPECT_EQ(Downloaded(buffer), bytes);
  EXPECT_EQ(report_.resumes, 2);
}

TEST_F(TransferTest, DamagedDownloadIsAskedForAgainAndGivenUpInTheEnd) {
  const std::string bytes = RandomBytes(3 * kMiB);
  Buffer buffer = Make(3 * kMiB);
  ASSERT_TRUE(buffer.Upload(bytes).ok());
  daemon_.DamageDownloads(1);
  EXPECT_EQ(Downloaded(buffer), bytes);
  EXPECT_EQ(report_.resumes, 1);
}

TEST_F(TransferTest, DownloadThatIsAlwaysDamagedIsDataLoss) {
  Buffer buffer = Make(8192);
  daemon_.DamageDownloads(100);
  std::string bytes(8192, '?');
  // The second chunk is the damaged one: asked for again it is the first, and comes through.
  const auto report =
      buffer.Download(absl::MakeSpan(bytes.data(), bytes.size()), 0, {.chunk_bytes = 4096});
  EXPECT_TRUE(report.ok());
  Client once = ConnectTo(daemon_, {.retry = {.max_attempts = 1}});
  Session session = *once.AttachSession(session_.id());
  const absl::Status status =
      session.AttachBuffer(buffer.id())
          ->Download(absl::MakeSpan(bytes.data(), bytes.size()), 0, {.chunk_bytes = 4096})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(status), "CHECKSUM");
}

TEST_F(TransferTest, SharedMemoryThatIsNotThereCanBeInsistedOn) {
  Buffer buffer = Make(100);
  const TransferOptions options = {.route = TransferOptions::Route::kShm};
  EXPECT_EQ(buffer.Upload("abc", 0, options).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(daemon_.Calls("Upload"), 0);
}

}  // namespace
}  // namespace gemmd::client
