

#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ConvertTest, SessionTimesHaveBounds) {
  ExpectErrors({
      {"session { min_ttl_ms: -5 }", "session.min_ttl_ms", {"-5", "below 1", "between 1 and"}},
      {"session { max_ttl_ms: 999999999999 }", "session.max_ttl_ms", {"above 31536000000"}},
      {"session { default_grace_ms: -1 }", "session.default_grace_ms", {"-1", "below 1"}},
      {"session { min_ttl_ms: 5000 max_ttl_ms: 4000 }",
       "session.max_ttl_ms",
       {"4000", "below session.min_ttl_ms=5000"}},
      {"session { max_ttl_ms: 9000 default_ttl_ms: 9001 }",
       "session.default_ttl_ms",
       {"9001", "above session.max_ttl_ms=9000"}},
  });
}

TEST(ConvertTest, DefaultThatFallsOutOfBoundsIsAnErrorToo) {
  EXPECT_THAT(ErrorOf("session { max_ttl_ms: 10000 }"),
              AllOf(StartsWith("session.default_ttl_ms: 30000 (the default) is above"),
                    HasSubstr("session.max_ttl_ms=10000")));
}

TEST(ConvertTest, SchedulerNumbersHaveBounds) {
  ExpectErrors({
      {"scheduler { lookahead_us: 9 }", "scheduler.lookahead_us", {"9 is below 10", "1000000"}},
      {"scheduler { lookahead_us: 1000001 }", "scheduler.lookahead_us", {"above 1000000"}},
      {"scheduler { aging_ms: -1 }", "scheduler.aging_ms", {"-1 is below 1"}},
      {"scheduler { aging_ms: 60001 }", "scheduler.aging_ms", {"60001 is above 60000"}},
      {"scheduler { inline_below_us: -1 }", "scheduler.inline_below_us", {"-1 is below 0"}},
      {"scheduler { inline_below_us: 1001 }", "scheduler.inline_below_us", {"above 1000"}},
      {"scheduler { processor_wake_us: -1 }", "scheduler.processor_wake_us", {"-1 is below 0"}},
      {"scheduler { busy_poll_us: 10001 }", "scheduler.busy_poll_us", {"10001", "10000"}},
      {"scheduler { armed_linger_us: 1000001 }", "scheduler.armed_linger_us", {"1000000"}},
      {"scheduler { armed_stream_linger_us: -1 }", "scheduler.armed_stream_linger_us", {"below 0"}},
      {"scheduler { processor_wake_us: 1000001 }",
       "scheduler.processor_wake_us",
       {"above 1000000"}},
  });
  const Config config =
      ConfigOf("scheduler { lookahead_us: 10 aging_ms: 60000 inline_below_us: 1000 }");
  EXPECT_EQ(config.scheduler.lookahead, absl::Microseconds(10));
  EXPECT_EQ(config.scheduler.aging, absl::Minutes(1));
  EXPECT_EQ(config.scheduler.inline_below, absl::Milliseconds(1));
  EXPECT_EQ(config.scheduler.processor_wake, std::nullopt);
  EXPECT_EQ(ConfigOf("scheduler { processor_wake_us: 0 }").scheduler.processor_wake,
            absl::ZeroDuration());
}

TEST(ConvertTest, DrainNumbersHaveBounds) {
  ExpectErrors({
      {"drain { notice_ms: 60001 }", "drain.notice_ms", {"60001 is above 60000"}},
      {"drain { limit_ms: 600001 }", "drain.limit_ms", {"600001 is above 600000"}},
      {"drain { limit_ms: -1 }", "drain.limit_ms", {"-1 is below 0"}},
  });
  EXPECT_EQ(ConfigOf("drain { limit_ms: 600000 }").drain.limit, absl::Minutes(10));
}

TEST(ConvertTest, LogTakesItsEnumsAndRefusesOthers) {
  const Config config =
      ConfigOf("log { format: FORMAT_JSON level: LEVEL_WARNING sample_calls: 100 }");
  EXPECT_EQ(config.log, (LogConfig{LogFormat::kJson, LogLevel::kWarning, 100}));
  EXPECT_EQ(ConfigOf("log { level: LEVEL_DEBUG }").log.level, LogLevel::kDebug);
  EXPECT_EQ(ConfigOf("log { level: LEVEL_ERROR }").log.level, LogLevel::kError);
  ExpectErrors({
      {"log { format: 7 }", "log.format", {"7", "FORMAT_JSON"}},
      {"log { level: 9 }", "log.level", {"9", "LEVEL_DEBUG"}},
      {"log { sample_calls: -1 }", "log.sample_calls", {"-1 is below 0"}},
  });
  EXPECT_THAT(ErrorOf("log { level: LOUD }"), StartsWith("line 2, column "));
}

TEST(ConvertTest, ConnectionsHaveBounds) {
  ExpectErrors({
      {"connections { max: -1 }", "connections.max", {"-1 is below 1"}},
      {"connections { max: 50001 }", "connections.max", {"above 50000"}},
      {"connections { max: 10 max_per_peer: 11 }",
       "connections.max_per_peer",
       {"11", "above connections.max=10"}},
      {"tuning { max_share: 0.6 }", "tuning.max_share", {"0.6", "0.5"}},
      {"connections { max_streams: 15 }", "connections.max_streams", {"15 is below 16"}},
      {"connections { max_received_bytes: 67108863 }",
       "connections.max_received_bytes",
       {"67108863 is below 67108864"}},
  });
  EXPECT_EQ(ConfigOf("").connections, (ConnectionsConfig{0, 0, 1000, 0}));
  EXPECT_EQ(ConfigOf("connections { max: 10 max_per_peer: 10 max_streams: 16 "
                     "max_received_bytes: 67108864 }")
                .connections,
            (ConnectionsConfig{10, 10, 16, 67108864}));
}

TEST(ConvertTest, SharePathIsAnAbsolutePathThatFits) {
  ExpectErrors({
      {"share { socket_path: \"share.sock\" }", "share.socket_path", {"share.sock", "absolute"}},
      {"share { socket_path: \"/" + std::string(107, 'a') + "\" }",
       "share.socket_path",
       {"108 bytes", "107", "shorter"}},
      {"share { socket_path: \"/a\\000b\" }", "share.socket_path", {"character"}},
  });
  const Config config = ConfigOf("share { socket_path: \"/run/gemmd/share.sock\" disabled: true }");
  EXPECT_EQ(config.share, (ShareConfig{true, "/run/gemmd/share.sock"}));
}

TEST(ConvertTest, MetricsMayListenOnAnyInterface) {
  for (const char* address : {"127.0.0.1:8471", "0.0.0.0:8471", "[::]:0", "localhost:0"}) {
    const Config config = ConfigOf(absl::StrCat("metrics { address: \"", address, "\" }"));
    EXPECT_EQ(config.metrics_address, address);
  }
  ExpectErrors({
      {"metrics { address: \"8471\" }", "metrics.address", {"8471", "host:port"}},
      {"metrics { address: \"127.0.0.1:8471s\" }", "metrics.address", {"8471s", "65535"}},
      {"metrics { address: \"127.0.0.1:1,2\" }", "metrics.address", {"1,2"}},
      {"metrics { address: \"unix:/tmp/m\" }", "metrics.address", {"/tmp/m"}},
  });
}

TEST(ConvertTest, MetricsAndShareHaveAddressesOfTheirOwn) {
  const std::string listeners =
      "listeners { address: \"127.0.0.1:8470\" } listeners { address: \"unix:/run/g.sock\" } ";
  ExpectErrors({
      {listeners + "metrics { address: \"127.0.0.1:8470\" }",
       "metrics.address",
       {"127.0.0.1:8470", "listeners", "of its own"}},
      {listeners + "share { socket_path: \"/run/g.sock\" }",
       "share.socket_path",
       {"/run/g.sock", "listeners", "of its own"}},
  });
  const std::string free = "listeners { address: \"127.0.0.1:0\" } ";
  EXPECT_EQ(ConfigOf(free + "metrics { address: \"127.0.0.1:0\" }").metrics_address, "127.0.0.1:0");
}

TEST(ConvertTest, FirstErrorIsTheOneReported) {
  EXPECT_THAT(ErrorOf("drain { notice_ms: -1 } log { sample_calls: -1 }"),
              AllOf(StartsWith("drain.notice_ms"), testing::Not(HasSubstr("sample_calls"))));
}

}  // namespace
}  // namespace gemmd::server
