#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

TEST(TracingTest, IsOffUnlessAnEndpointIsNamed) {
  EXPECT_EQ(ConfigOf("").tracing, TracingConfig());
  EXPECT_EQ(ConfigOf("tracing {}").tracing.otlp_endpoint, "");
}

TEST(TracingTest, ASampleOfNothingIsNotTheDefault) {
  const std::string collector = "tracing { otlp_endpoint: \"127.0.0.1:4317\" ";
  EXPECT_EQ(ConfigOf(collector + "}").tracing.sample, 0.01);
  EXPECT_EQ(ConfigOf(collector + "sample: 0 }").tracing.sample, 0);
  EXPECT_EQ(ConfigOf(collector + "sample: 1 }").tracing.sample, 1);
}

TEST(TracingTest, EndpointsOfThisHostNeedNoTls) {
  for (const char* endpoint :
       {"127.0.0.1:4317", "[::1]:4317", "localhost:4317", "unix:/run/o.sock"}) {
    const Config config = ConfigOf(absl::StrCat("tracing { otlp_endpoint: \"", endpoint, "\" }"));
    EXPECT_EQ(config.tracing.otlp_endpoint, endpoint);
  }
}

TEST(TracingTest, OthersNeedTlsOrAWordForPlaintext) {
  const std::string collector = "tracing { otlp_endpoint: \"collector.example:4317\" ";
  EXPECT_EQ(ConfigOf(collector + "ca_file: \"/ca\" }").tracing.ca_file, "/ca");
  EXPECT_TRUE(
      ConfigOf(collector + "plaintext_beyond_loopback: true }").tracing.plaintext_beyond_loopback);
  ExpectErrors({
      {collector + "}",
       "tracing.otlp_endpoint",
       {"collector.example:4317", "not a loopback", "ca_file", "plaintext_beyond_loopback"}},
      {collector + "ca_file: \"/ca\" plaintext_beyond_loopback: true }",
       "tracing.plaintext_beyond_loopback",
       {"ca_file", "remove"}},
  });
}

TEST(TracingTest, WhatCannotBeIsNamed) {
  ExpectErrors({
      {"tracing { sample: 0.5 }", "tracing.otlp_endpoint", {"empty", "127.0.0.1:4317"}},
      {"tracing { otlp_endpoint: \"127.0.0.1:4317\" sample: 1.5 }",
       "tracing.sample",
       {"1.5", "above 1"}},
      {"tracing { otlp_endpoint: \"127.0.0.1:4317\" sample: nan }", "tracing.sample", {"number"}},
      {"tracing { otlp_endpoint: \"127.0.0.1\" }", "tracing.otlp_endpoint", {"host:port"}},
      {"tracing { otlp_endpoint: \"127.0.0.1:0\" }", "tracing.otlp_endpoint", {"4317"}},
      {"tracing { otlp_endpoint: \"http://127.0.0.1:4317\" }",
       "tracing.otlp_endpoint",
       {"host:port"}},
      {"tracing { otlp_endpoint: \"unix:relative\" }", "tracing.otlp_endpoint", {"absolute"}},
  });
}

}  // namespace
}  // namespace gemmd::server
