#include "server/engine/observe/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "server/engine/observe/log_escape.h"
#include "tests/server/engine/json_checker.h"

namespace gemmd::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

// A log whose lines the test keeps.
class LogTest : public testing::Test {
 protected:
  Log& Open(LogFormat format, LogLevel level = LogLevel::kInfo) {
    log_ = std::make_unique<Log>(LogConfig{format, level, 0},
                                 [this](std::string_view line) { lines_.emplace_back(line); });
    return *log_;
  }

  // What one event with the field value=`value` becomes.
  std::string LineOf(LogFormat format, std::string_view value) {
    Open(format).Info("event", {{"value", value}});
    return lines_.back();
  }

  std::vector<std::string> lines_;
  std::unique_ptr<Log> log_;
};

TEST_F(LogTest, TextLineHasTimeLevelEventAndFields) {
  Open(LogFormat::kText)
      .Info("session_opened",
            {{"session", "s-1"}, {"ttl_ms", 30000}, {"ratio", 0.5}, {"ok", true}});
  ASSERT_EQ(lines_.size(), 1);
  EXPECT_THAT(lines_[0], MatchesRegex("20..-..-..T..:..:..\\.......Z INFO session_opened "
                                      "session=\"s-1\" ttl_ms=30000 ratio=0.5 ok=true\n"));
}

TEST_F(LogTest, OneOfSeveralProcessesSaysWhich) {
  const auto keep = [this](std::string_view line) { lines_.emplace_back(line); };
  Log text({.process = "cuda:1"}, keep);
  text.Info("serving", {{"devices", 1}});
  EXPECT_THAT(lines_.back(), EndsWith(" INFO serving process=\"cuda:1\" devices=1\n"));
  Log json({.format = LogFormat::kJson, .process = "cuda:1"}, keep);
  json.Configure({});
  json.Configure({.format = LogFormat::kJson});
  json.Info("serving", {});
  EXPECT_THAT(lines_.back(), EndsWith("\"event\":\"serving\",\"process\":\"cuda:1\"}\n"));
}

TEST_F(LogTest, JsonLineIsOneObject) {
  Open(LogFormat::kJson)
      .Warning("slow", {{"session", "s-1"}, {"ttl_ms", -3}, {"ratio", 1e300}, {"ok", false}});
  ASSERT_EQ(lines_.size(), 1);
  EXPECT_THAT(lines_[0],
              MatchesRegex("\\{\"time\":\"20..-..-..T..:..:..\\.......Z\",\"level\":\"WARNING\","
                           "\"event\":\"slow\",\"session\":\"s-1\",\"ttl_ms\":-3,"
                           "\"ratio\":1e\\+300,\"ok\":false\\}\n"));
  EXPECT_TRUE(IsJsonObject(lines_[0].substr(0, lines_[0].size() - 1)));
}

TEST_F(LogTest, ValueCannotForgeALine) {
  const std::string attack = "x\"\n2026-01-01T00:00:00.000000Z ERROR forged a=\"1";
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const std::string line = LineOf(format, attack);
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
    EXPECT_THAT(line, HasSubstr("x\\\"\\n2026-01-01"));
  }
}

TEST_F(LogTest, ValueCannotForgeAField) {
  EXPECT_THAT(LineOf(LogFormat::kText, "a\" admin=\"true"), HasSubstr("value=\"a\\\" admin="));
  EXPECT_THAT(LineOf(LogFormat::kJson, "a\",\"level\":\"ERROR"),
              HasSubstr("\"value\":\"a\\\",\\\"level\\\""));
}

TEST_F(LogTest, ValueCannotMoveATerminal) {
  const std::string line = LineOf(LogFormat::kText, "\x1b[2J\r\t\x7f\xc2\x9b\xe2\x80\xae");
  EXPECT_THAT(line, EndsWith("value=\"\\u001b[2J\\r\\t\\u007f\\u009b\\u202e\"\n"));
}

TEST_F(LogTest, EveryByteStaysOneJsonLine) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string line = LineOf(LogFormat::kJson, std::string{'a', static_cast<char>(byte), 'z'});
    ASSERT_EQ(line.back(), '\n');
    line.pop_back();
    EXPECT_TRUE(IsJsonObject(line)) << line;
  }
}

TEST_F(LogTest, Utf8StaysAndTheRestIsReplaced) {
  const auto quoted = [](std::string_view value) {
    std::string out;
    AppendQuoted(value, out);
    return out;
  };
  EXPECT_EQ(quoted("\xc3\xbc \xe2\x82\xac \xf0\x9f\x9a\x80"),
            "\"\xc3\xbc \xe2\x82\xac \xf0\x9f\x9a\x80\"");
  EXPECT_EQ(quoted("\xff"), "\"\\ufffd\"");
  EXPECT_EQ(quoted("\xc3"), "\"\\ufffd\"");                         // cut
  EXPECT_EQ(quoted("\xc0\xaf"), "\"\\ufffd\\ufffd\"");              // overlong
  EXPECT_EQ(quoted("\xe0\x80\xaf"), "\"\\ufffd\\ufffd\\ufffd\"");   // overlong
  EXPECT_EQ(quoted("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"");   // surrogate
  EXPECT_EQ(quoted("\xf4\x90\x80\x80").substr(0, 7), "\"\\ufffd");  // above U+10FFFF
  EXPECT_EQ(quoted(std::string_view("\0", 1)), "\"\\u0000\"");
}

TEST_F(LogTest, NumbersWithoutJsonFormBecomeStrings) {
  const double infinity = std::numeric_limits<double>::infinity();
  Open(LogFormat::kJson).Info("event", {{"a", std::nan("")}, {"b", infinity}, {"c", -infinity}});
  EXPECT_THAT(lines_[0], HasSubstr("\"a\":\"NaN\",\"b\":\"Infinity\",\"c\":\"-Infinity\"}"));
}

TEST_F(LogTest, LongValuesAreCutAndLinesStayBelowPipeBuf) {
  const std::string line = LineOf(LogFormat::kText, std::string(100000, 'a'));
  EXPECT_THAT(line, EndsWith("aaa...\"\n"));
  EXPECT_LT(line.size(), 600);
  const std::string bad(100000, '\x01');
  Open(LogFormat::kJson).Info("event", {{"a", bad}, {"b", bad}, {"c", 1}});
  EXPECT_LE(lines_.back().size(), 4096);
  EXPECT_THAT(lines_.back(), EndsWith(",\"c\":1,\"truncated\":true}\n"));
  EXPECT_THAT(lines_.back(), Not(HasSubstr("\"b\":")));
}

TEST_F(LogTest, CutFallsBetweenCharacters) {
  std::string value(511, 'a');
  value += "\xc3\xbc tail";  // a two-byte character over the cut at 512
  EXPECT_THAT(LineOf(LogFormat::kText, value), EndsWith("aaa...\"\n"));
}

TEST_F(LogTest, LevelsBelowTheConfiguredAreDropped) {
  Log& log = Open(LogFormat::kText, LogLevel::kWarning);
  log.Debug("a", {});
  log.Info("b", {});
  log.Warning("c", {});
  log.Error("d", {});
  ASSERT_EQ(lines_.size(), 2);
  EXPECT_THAT(lines_[0], EndsWith(" WARNING c\n"));
  EXPECT_THAT(lines_[1], EndsWith(" ERROR d\n"));
  EXPECT_FALSE(log.enabled(LogLevel::kInfo));
}

TEST_F(LogTest, ConfigureTakesEffectAtOnce) {
  Log& log = Open(LogFormat::kText, LogLevel::kError);
  log.Configure({LogFormat::kJson, LogLevel::kDebug, 1});
  log.Debug("a", {});
  ASSERT_EQ(lines_.size(), 1);
  EXPECT_EQ(lines_[0][0], '{');
  EXPECT_TRUE(log.SampleCall());
}

TEST_F(LogTest, SamplingPicksOneInN) {
  Log& log = Open(LogFormat::kText);
  EXPECT_FALSE(log.SampleCall());  // 0: none
  log.Configure({LogFormat::kText, LogLevel::kInfo, 4});
  int picked = 0;
  for (int i = 0; i < 100; ++i) picked += log.SampleCall();
  EXPECT_EQ(picked, 25);
}

TEST_F(LogTest, LinesOfManyThreadsDoNotMixOnStderr) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  std::string text;
  std::thread reader([&] {
    char bytes[4096];
    for (ssize_t got; (got = read(ends[0], bytes, sizeof(bytes))) > 0;) text.append(bytes, got);
  });
  Log log({LogFormat::kJson, LogLevel::kInfo, 0});
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t) {
    writers.emplace_back([&log, t] {
      const std::string value(400, static_cast<char>('a' + t));
      for (int i = 0; i < 200; ++i) log.Info("event", {{"value", value}});
    });
  }
  for (auto& writer : writers) writer.join();
  EXPECT_TRUE(log.Flush(absl::Minutes(1)));
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  int lines = 0;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    EXPECT_TRUE(IsJsonObject(std::string_view(text).substr(at, end - at)));
    ++lines;
  }
  EXPECT_EQ(lines, 800);
}

}  // namespace
}  // namespace gemmd::server
