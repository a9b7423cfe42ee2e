#include "server/service/compute/trace_context.h"

#include <gtest/gtest.h>

#include <set>

namespace gemmd::server {
namespace {

constexpr char kHeader[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContextTest, ReadsWhatTheStandardShows) {
  const auto context = TraceContext::Parse(kHeader);
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(context->Response("00000000000000aa"),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00000000000000aa-01");
}

TEST(TraceContextTest, KnowsTheCallersSpanAndWhetherItsTraceIsKept) {
  const std::string trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-";
  EXPECT_EQ(TraceContext::Parse(trace + "01")->span_id, "00f067aa0ba902b7");
  for (const char* flags : {"01", "03", "0b", "ff"}) {
    EXPECT_TRUE(TraceContext::Parse(trace + flags)->sampled()) << flags;
  }
  for (const char* flags : {"00", "02", "0a", "fe"}) {
    EXPECT_FALSE(TraceContext::Parse(trace + flags)->sampled()) << flags;
  }
}

TEST(TraceContextTest, ALaterVersionIsReadAsFarAsThisOneGoes) {
  const std::string later = std::string("cc") + (kHeader + 2);
  EXPECT_TRUE(TraceContext::Parse(later).has_value());
  EXPECT_TRUE(TraceContext::Parse(later + "-what-comes").has_value());
  EXPECT_FALSE(TraceContext::Parse(later + ".what").has_value());
}

TEST(TraceContextTest, BrokenHeadersAreNone) {
  const std::string good = kHeader;
  for (const std::string& bad :
       {std::string(), good.substr(1), good + "-01", good + "0", "ff" + good.substr(2),
        "0g" + good.substr(2), "00_" + good.substr(3),
        "00-" + std::string(32, '0') + good.substr(35),
        good.substr(0, 36) + std::string(16, '0') + "-01",
        std::string("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"),
        good.substr(0, 10) + "\n" + good.substr(11)}) {
    EXPECT_FALSE(TraceContext::Parse(bad).has_value()) << bad;
  }
}

TEST(TraceContextTest, SpansDiffer) {
  std::set<std::string> spans;
  for (uint64_t call = 0; call < 1000; ++call) {
    const std::string span = SpanId(7, call);
    EXPECT_EQ(span.size(), 16);
    EXPECT_NE(span, std::string(16, '0'));
    spans.insert(span);
  }
  EXPECT_EQ(spans.size(), 1000);
}

}  // namespace
}  // namespace gemmd::server
