#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

void ExpectSame(const Config& a, const Config& b) {
  EXPECT_EQ(a.listeners, b.listeners);
  EXPECT_EQ(a.devices, b.devices);
  EXPECT_EQ(a.tenants, b.tenants);
  EXPECT_EQ(a.session, b.session);
  EXPECT_EQ(a.scheduler, b.scheduler);
  EXPECT_EQ(a.drain, b.drain);
  EXPECT_EQ(a.connections, b.connections);
  EXPECT_EQ(a.share, b.share);
  EXPECT_EQ(a.metrics_address, b.metrics_address);
  EXPECT_EQ(a.log, b.log);
  EXPECT_EQ(a.tracing, b.tracing);
  EXPECT_EQ(a.tuning, b.tuning);
  EXPECT_EQ(a.auth, b.auth);
}

void ExpectRoundTrip(const ParsedConfig& config) {
  const std::string& text = config.text;
  const auto parsed = ParseConfig(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
  ExpectSame(*parsed, config);
}

TEST(PrintTest, DefaultsRoundTrip) { ExpectRoundTrip(ConfigOf("")); }

TEST(PrintTest, DefaultsAreShown) {
  const std::string text = ConfigOf("").text;
  for (const char* line :
       {"name: \"cpu:0\"", "name: \"default\"", "max_ops: 4096", "max_message_bytes: 4194304",
        "default_ttl_ms: 30000", "lookahead_us: 2000", "notice_ms: 1000"}) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
}

TEST(PrintTest, EverythingSetRoundTrips) {
  ExpectRoundTrip(ConfigOf(R"pb(
    listeners { address: "unix:/tmp/a" tenant: "b" unix_mode: 0600 }
    listeners { address: "unix-abstract:a" tenant: "b" }
    devices {
      name: "cpu:1"
      memory_bytes: 77
      threads: 2
      disabled_kernels: [ "x", "y" ]
    }
    tenants { name: "default" weight: 0.1 }
    tenants {
      name: "b"
      weight: 3.3333333333333335
      limits {
        max_ops: 1
        max_inline_bytes: 2
        max_sessions: 3
        max_buffers: 4
        max_buffer_bytes: 5
        max_plans: 6
        max_queued_programs: 7
        max_streams: 8
        window_batches: 9
        window_bytes: 10
        idempotency_entries: 11
        max_program_ms: 12
        max_armed: 13
      }
    }
    limits { max_message_bytes: 70000 max_buffer_bytes: 99 }
    session { default_ttl_ms: 20 min_ttl_ms: 10 max_ttl_ms: 30 default_grace_ms: 40 }
    scheduler {
      lookahead_us: 11
      aging_ms: 12
      inline_below_us: 13
      processor_wake_us: 0
      busy_poll_us: 14
      armed_linger_us: 0
      armed_stream_linger_us: 21
    }
    drain { notice_ms: 14 limit_ms: 15 }
    connections { max: 18 max_per_peer: 17 max_streams: 19 max_received_bytes: 67108865 }
    share { disabled: true socket_path: "/tmp/s" }
    metrics { address: "127.0.0.1:1" }
    log { format: FORMAT_JSON level: LEVEL_ERROR sample_calls: 16 }
    tracing { otlp_endpoint: "otel.example:4317" sample: 0 ca_file: "/ca" }
    tuning { background: true max_share: 0.25 }
    auth {
      token_file: "/tokens"
      certificates { name: "spiffe://a/b" role: ROLE_ADMIN }
      unix_peers { uid: 7 tenant: "b" }
    }
  )pb"));
}

TEST(PrintTest, WhatOnlyAGpuHasRoundTrips) {
  const std::string text =
      "devices { name: \"cuda:0\" tuning_table: \"t\" skip_self_test: true no_numa_binding: true }";
  const auto config = ParseConfig(WithListener(text), {}, {"cuda:0"});
  ASSERT_TRUE(config.ok()) << config.status();
  const auto parsed = ParseConfig(config->text, {}, {"cuda:0"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ExpectSame(*parsed, *config);
  EXPECT_FALSE(parsed->devices[0].numa_binding);
}

}  // namespace
}  // namespace gemmd::server
