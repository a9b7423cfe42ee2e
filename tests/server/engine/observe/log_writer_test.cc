#include "server/engine/observe/log_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace gemmd::server {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

std::string DroppedLine(int64_t count) { return absl::StrCat("dropped ", count, "\n"); }

// A pipe whose reader is the test.
class LogWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    ASSERT_EQ(pipe(ends_), 0);
  }
  // The writing end stays open: a writer's thread that was left behind may be at it.
  void TearDown() override {
    CloseReader();
    writer_.reset();
  }

  void Open(size_t max_queued_bytes, absl::Duration patience = absl::Minutes(1)) {
    writer_ = std::make_unique<LogWriter>(
        LogWriter::Options{
            .fd = ends_[1], .max_queued_bytes = max_queued_bytes, .patience = patience},
        DroppedLine);
  }
  void CloseReader() {
    if (ends_[0] >= 0) close(std::exchange(ends_[0], -1));
  }
  // Reads until `text` has `lines` of them.
  void ReadLines(std::string& text, int lines) {
    char bytes[4096];
    while (std::count(text.begin(), text.end(), '\n') < lines) {
      const ssize_t got = read(ends_[0], bytes, sizeof(bytes));
      ASSERT_GT(got, 0);
      text.append(bytes, static_cast<size_t>(got));
    }
  }

  int ends_[2] = {-1, -1};
  std::unique_ptr<LogWriter> writer_;
};

std::vector<std::string> LinesOf(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

TEST_F(LogWriterTest, WritesLinesInOrder) {
  Open(1 << 20);
  for (int i = 0; i < 3; ++i) writer_->Write(absl::StrCat("line ", i, "\n"), false);
  EXPECT_TRUE(writer_->Flush(absl::Minutes(1)));
  std::string text;
  ReadLines(text, 3);
  EXPECT_EQ(text, "line 0\nline 1\nline 2\n");
  EXPECT_EQ(writer_->dropped(), 0);
}

// "line 0", "line 1" .. with "dropped N" wherever N are missing: how many there are, and were lost.
struct Account {
  int64_t lines = 0;
  int64_t dropped = 0;
};
Account AccountOf(const std::string& text) {
  Account account;
  for (const std::string& line : LinesOf(text)) {
    int64_t count = 0;
    if (absl::string_view rest = line; absl::ConsumePrefix(&rest, "dropped ")) {
      EXPECT_TRUE(absl::SimpleAtoi(rest, &count)) << line;
      account.dropped += count;
      account.lines += count;
    } else {
      EXPECT_EQ(line, absl::StrCat("line ", account.lines++));
    }
  }
  return account;
}

TEST_F(LogWriterTest, AReaderThatStallsStopsNoCallerAndIsToldHowManyLinesItMissed) {
  constexpr int kLines = 100000;
  // Else all that is ever queued may fit: no line is taken before the last one on a busy machine.
  ASSERT_GT(fcntl(ends_[1], F_SETPIPE_SZ, 4096), 0);
  Open(1 << 16);
  for (int i = 0; i < kLines; ++i) writer_->Write(absl::StrCat("line ", i, "\n"), false);
  EXPECT_FALSE(writer_->Flush(absl::ZeroDuration()));
  EXPECT_GT(writer_->dropped(), kLines / 2);
  std::string text;
  Account account;
  while (account.lines < kLines) {
    ReadLines(text, std::count(text.begin(), text.end(), '\n') + 1);
    account = AccountOf(text.substr(0, text.rfind('\n') + 1));
  }
  EXPECT_EQ(account.lines, kLines);
  EXPECT_EQ(account.dropped, writer_->dropped());
  writer_->Write("after\n", false);
  text.clear();
  ReadLines(text, 1);
  EXPECT_EQ(text, "after\n");
}

TEST_F(LogWriterTest, WithASlowReaderEveryLineIsWrittenOrCountedInItsPlace) {
  constexpr int kLines = 20000;
  Open(1 << 13);
  std::string text;
  std::thread reader([&] {
    char bytes[512];
    for (ssize_t got; (got = read(ends_[0], bytes, sizeof(bytes))) > 0;) {
      text.append(bytes, static_cast<size_t>(got));
    }
  });
  for (int i = 0; i < kLines; ++i) writer_->Write(absl::StrCat("line ", i, "\n"), false);
  const int64_t dropped = writer_->dropped();
  writer_.reset();
  close(std::exchange(ends_[1], -1));
  reader.join();
  const Account account = AccountOf(text);
  EXPECT_EQ(account.lines, kLines);
  EXPECT_EQ(account.dropped, dropped);
}

TEST_F(LogWriterTest, WarningsHaveRoomThatOtherLinesLeave) {
  Open(1 << 16);
  const std::string line(99, 'x');
  while (writer_->dropped() == 0) writer_->Write(line + "\n", false);
  writer_->Write("urgent\n", true);
  EXPECT_EQ(writer_->dropped(), 1);
  while (writer_->dropped() == 1) writer_->Write(line + "\n", true);  // has an end, too
}

TEST_F(LogWriterTest, ItsEndWaitsForTheReaderButNotForLong) {
  Open(1 << 20, absl::Milliseconds(50));
  for (int i = 0; i < 10000; ++i) writer_->Write(absl::StrCat("line ", i, "\n"), false);
  writer_.reset();  // the test's own time limit would find it waiting
  std::string text;
  ReadLines(text, 10000);  // the thread it left behind goes on
  EXPECT_EQ(LinesOf(text).back(), "line 9999");
}

TEST_F(LogWriterTest, AClosedPipeLosesLinesAndNothingElse) {
  Open(1 << 20);
  CloseReader();
  for (int i = 0; i < 10; ++i) writer_->Write("line\n", false);
  EXPECT_TRUE(writer_->Flush(absl::Minutes(1)));
  EXPECT_EQ(writer_->dropped(), 10);
}

TEST_F(LogWriterTest, AFullDiskLosesLinesAndNothingElse) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  LogWriter writer({.fd = full}, DroppedLine);
  for (int i = 0; i < 10; ++i) writer.Write("line\n", false);
  EXPECT_TRUE(writer.Flush(absl::Minutes(1)));
  EXPECT_EQ(writer.dropped(), 10);
  close(full);
}

TEST_F(LogWriterTest, ADescriptorThatSomebodyMadeNonBlockingLosesNothing) {
  ASSERT_EQ(fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
  Open(1 << 20);
  for (int i = 0; i < 20000; ++i) writer_->Write(absl::StrCat("line ", i, "\n"), false);
  std::string text;
  ReadLines(text, 20000);
  EXPECT_EQ(writer_->dropped(), 0);
  EXPECT_EQ(LinesOf(text).back(), "line 19999");
}

TEST_F(LogWriterTest, LongLinesGoOutWhole) {
  Open(1 << 20);
  const std::string line = std::string(4095, 'x') + "\n";
  std::string text;
  for (int i = 0; i < 20; ++i) writer_->Write(line, false);
  ReadLines(text, 20);
  for (const std::string& got : LinesOf(text)) EXPECT_THAT(got, SizeIs(4095));
}

TEST_F(LogWriterTest, ALastWordIsWrittenOrGivenUp) {
  WriteWithin(ends_[1], "the end\n", absl::Minutes(1));
  std::string text;
  ReadLines(text, 1);
  EXPECT_THAT(LinesOf(text), ElementsAre("the end"));
  ASSERT_EQ(fcntl(ends_[1], F_SETFL, O_NONBLOCK), 0);
  while (write(ends_[1], "x", 1) == 1) {
  }
  ASSERT_EQ(fcntl(ends_[1], F_SETFL, 0), 0);
  WriteWithin(ends_[1], "never read\n", absl::Milliseconds(10));
  CloseReader();
  WriteWithin(ends_[1], "never read\n", absl::Minutes(1));
}

}  // namespace
}  // namespace gemmd::server
