#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

TEST(LimitsTest, EveryLimitRefusesANegativeNumber) {
  for (const char* field : {"max_message_bytes", "max_ops", "max_inline_bytes", "max_sessions",
                            "max_buffers", "max_buffer_bytes", "max_plans", "max_armed",
                            "max_queued_programs", "max_streams", "window_batches", "window_bytes",
                            "idempotency_entries", "max_program_ms", "max_host_bytes"}) {
    const std::string text = absl::StrCat("limits { ", field, ": -1 }");
    ExpectErrors({{text, absl::StrCat("limits.", field), {"-1 is below", "give a value between"}}});
  }
}

TEST(LimitsTest, UpperBoundsAreThoseOfTheSchema) {
  ExpectErrors({
      {"limits { max_message_bytes: 65535 }", "limits.max_message_bytes", {"below 65536"}},
      {"limits { max_message_bytes: 67108865 }", "limits.max_message_bytes", {"above 67108864"}},
      {"limits { max_ops: 65537 }", "limits.max_ops", {"65537 is above 65536"}},
      {"limits { max_inline_bytes: 4194305 }",
       "limits.max_inline_bytes",
       {"4194305", "above limits.max_message_bytes=4194304"}},
      {"limits { max_buffer_bytes: 9000000000000000000 }", "limits.max_buffer_bytes", {"above"}},
      {"limits { window_bytes: 9000000000000000000 }", "limits.window_bytes", {"above"}},
      {"limits { max_host_bytes: 1048575 }", "limits.max_host_bytes", {"below 1048576"}},
  });
}

TEST(LimitsTest, SmallerMessagesLowerTheDefaultOfInlineData) {
  const Limits limits = ConfigOf("limits { max_message_bytes: 65536 }").tenants[0].limits;
  EXPECT_EQ(limits.max_message_bytes, 65536);
  EXPECT_EQ(limits.max_inline_bytes, 65536 - 1024);
}

TEST(LimitsTest, LargerMessagesKeepTheDefaultOfInlineData) {
  const Limits limits = ConfigOf("limits { max_message_bytes: 67108864 }").tenants[0].limits;
  EXPECT_EQ(limits.max_inline_bytes, 4194304 - 65536);
}

TEST(LimitsTest, TenantTakesFromTheTopWhatItLeavesOut) {
  const Config config = ConfigOf(
      "limits { max_sessions: 7 max_plans: 8 max_buffer_bytes: 900 max_message_bytes: 1000000 }"
      "tenants { name: \"default\" limits { max_plans: 9 } } tenants { name: \"b\" }");
  ASSERT_EQ(config.tenants.size(), 2);
  const Limits& first = config.tenants[0].limits;
  EXPECT_EQ(first.max_sessions, 7);
  EXPECT_EQ(first.max_plans, 9);
  EXPECT_EQ(first.max_buffer_bytes, 900);
  EXPECT_EQ(first.max_message_bytes, 1000000);
  EXPECT_EQ(first.max_streams, 512);
  EXPECT_EQ(config.tenants[1].limits.max_plans, 8);
}

TEST(LimitsTest, ErrorsOfATenantNameIt) {
  ExpectErrors({
      {"tenants { name: \"default\" } tenants { name: \"b\" limits { max_ops: 70000 } }",
       "tenants[1].limits.max_ops",
       {"70000 is above 65536"}},
      {"tenants { name: \"default\" limits { max_message_bytes: 100000 } }",
       "tenants[0].limits.max_message_bytes",
       {"100000", "one tenant", "set limits.max_message_bytes"}},
  });
}

}  // namespace
}  // namespace gemmd::server
