#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

void ExpectRefused(const std::string& current, const std::string& next, const std::string& path) {
  const absl::Status status = CheckReload(ConfigOf(current), ConfigOf(next));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << next;
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(testing::StartsWith(path + ": "), testing::HasSubstr("restart")));
}

TEST(ReloadTest, SameConfigIsFine) { EXPECT_TRUE(CheckReload(ConfigOf(""), ConfigOf("")).ok()); }

TEST(ReloadTest, WhatTheSchemaMarksMayChange) {
  const Config next = ConfigOf(
      "tenants { name: \"default\" weight: 3 } tenants { name: \"new\" }"
      "limits { max_ops: 5 } session { default_ttl_ms: 5000 } scheduler { aging_ms: 7 }"
      "drain { notice_ms: 9 } log { level: LEVEL_DEBUG }");
  EXPECT_TRUE(CheckReload(ConfigOf(""), next).ok());
}

TEST(ReloadTest, TheRestMayNot) {
  ExpectRefused("", "listeners { address: \"unix:/tmp/a\" }", "listeners");
  ExpectRefused("", "devices { name: \"cpu:0\" threads: 2 }", "devices");
  ExpectRefused("", "limits { max_message_bytes: 100000 }", "limits.max_message_bytes");
  ExpectRefused("", "connections { max: 5 }", "connections");
  ExpectRefused("", "share { disabled: true }", "share");
  ExpectRefused("", "tracing { otlp_endpoint: \"127.0.0.1:4317\" }", "tracing");
  ExpectRefused("", "metrics { address: \"127.0.0.1:0\" }", "metrics.address");
}

TEST(ReloadTest, WritingOutADefaultIsNoChange) {
  EXPECT_TRUE(CheckReload(ConfigOf(""), ConfigOf("devices { name: \"cpu:0\" }")).ok());
}

}  // namespace
}  // namespace gemmd::server
