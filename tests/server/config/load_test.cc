#include "server/config/load.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(LoadTest, DefaultsAreThoseOfTheSchema) {
  const Config config = ConfigOf("");
  ASSERT_EQ(config.listeners.size(), 1);
  EXPECT_EQ(config.listeners[0], (ListenerConfig{"127.0.0.1:0", "default", 0660}));
  EXPECT_EQ(config.devices, std::vector<DeviceConfig>{DeviceConfig{}});
  ASSERT_EQ(config.tenants.size(), 1);
  EXPECT_EQ(config.tenants[0], TenantConfig{});
  EXPECT_EQ(config.tenants[0].limits.max_message_bytes, 4194304);
  EXPECT_EQ(config.tenants[0].limits.max_inline_bytes, 4194304 - 65536);
  EXPECT_EQ(config.session, SessionConfig{});
  EXPECT_EQ(config.scheduler, SchedulerConfig{});
  EXPECT_EQ(config.drain, DrainConfig{});
  EXPECT_EQ(config.share, ShareConfig{});
  EXPECT_EQ(config.metrics_address, "");
  EXPECT_EQ(config.log, LogConfig{});
}

TEST(LoadTest, UnknownFieldIsNamedWithItsLine) {
  const std::string error = ErrorOf("session {\n  ttl: 3\n}");
  EXPECT_THAT(error, AllOf(StartsWith("line 3, column "), HasSubstr("\"ttl\"")));
}

TEST(LoadTest, UnknownFieldOrValueIsToldWithThoseThatThereAre) {
  EXPECT_THAT(ErrorOf("device { name: \"cpu:0\" }"),
              HasSubstr("\"device\"; give one of listeners, devices, "));
  EXPECT_THAT(ErrorOf("drain { notice: 3 }"), HasSubstr("give one of notice_ms, limit_ms"));
  EXPECT_THAT(ErrorOf("auth { unix_peers { role: OWNER } }"),
              HasSubstr("; give one of ROLE_USER, "));
  EXPECT_THAT(ErrorOf("log { level: verbose }"),
              HasSubstr("; give one of LEVEL_INFO, LEVEL_DEBUG"));
  EXPECT_THAT(ErrorOf("log { level: \"info\" }"), HasSubstr("; the names of values stand without"));
}

TEST(LoadTest, OtherFormatsAndMissingQuotesAreTold) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"listeners\": [{\"address\": \"127.0.0.1:8470\"}]}", "Protocol Buffers text"},
      {"listeners:\n  - address: 127.0.0.1:8470\n", "Protocol Buffers text"},
      {"listeners { address: 127.0.0.1:8470 }", "put text in quotes"},
      {"listeners { address: localhost:8470 }", "put text in quotes"},
      {"devices { name: cpu:0 }", "put text in quotes"},
      {"devices { name: \"cpu:0\" memory_bytes: \"8GiB\" }", "without quotes, in bytes"},
      {"drain { limit_ms: \"30s\" }", "the unit that ends the field's name"},
      {"drain { limit_ms: 30s }", "without a unit"},
      {"devices { name: \"cpu:0\" memory_bytes: 8GiB }", "without a unit"},
      {"share { disabled: yes }", "give true or false"},
      {"[listeners]\naddress = \"127.0.0.1:0\"", "Protocol Buffers text"},
      {"// for loopback\nshare {}", "a comment begins with #"},
      {"listeners { address: \"127.0.0.1:0\"", "close it with }"},
      {"listeners { address: \u201d127.0.0.1:0\u201d }", "a curly quote"},
      {"\ufefflisteners { address: \"127.0.0.1:0\" }", "a byte order mark"},
      {"log { level: LEVEL_INFO } log { format: FORMAT_JSON }", "keep one"},
  };
  for (const auto& [text, remedy] : cases) {
    const auto config = ParseConfig(text);
    EXPECT_THAT(std::string(config.status().message()),
                AllOf(StartsWith("line "), HasSubstr(remedy)))
        << text;
  }
}

TEST(LoadTest, WrongTypeIsNamedWithItsLine) {
  EXPECT_THAT(ErrorOf("session { min_ttl_ms: \"soon\" }"), StartsWith("line 2, column "));
}

TEST(LoadTest, NumberBeyondItsTypeIsAnError) {
  EXPECT_THAT(ErrorOf("limits { max_ops: 99999999999 }"), StartsWith("line 2, column "));
}

TEST(LoadTest, FieldGivenTwiceIsAnError) {
  EXPECT_THAT(ErrorOf("limits { max_ops: 1 max_ops: 2 }"),
              AllOf(StartsWith("line 2, column "), HasSubstr("max_ops")));
}

TEST(LoadTest, AnyBytesGetAnAnswer) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(3, static_cast<char>(byte));
    const auto config = ParseConfig(text);
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(ParseConfig(std::string(1 << 16, '{')).ok());
  EXPECT_FALSE(ParseConfig(std::string((1 << 20) + 1, '#')).ok());
}

TEST(LoadTest, EmptyFileWithExtraListenerIsEnough) {
  const std::vector<std::string> extra = {"127.0.0.1:0", "unix:/tmp/gemmd.sock"};
  const auto config = ParseConfig("", extra);
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->listeners.size(), 2);
  EXPECT_EQ(config->listeners[1].address, "unix:/tmp/gemmd.sock");
  EXPECT_EQ(config->listeners[1].tenant, "default");
}

TEST(LoadTest, ExtraListenersAreCheckedLikeThoseOfTheFile) {
  const std::vector<std::string> open = {"0.0.0.0:1"};
  EXPECT_THAT(ParseConfig("", open).status().message(), HasSubstr("--listen[0]: "));
  const std::vector<std::string> loopback = {"127.0.0.1:0"};
  EXPECT_THAT(ParseConfig("tenants { name: \"a\" }", loopback).status().message(),
              HasSubstr("--listen[0].tenant: \"default\" is not one of tenants"));
}

TEST(LoadTest, MissingFileIsNotFound) {
  const auto config = LoadConfig("/nonexistent/gemmd.textproto");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(config.status().message(), HasSubstr("/nonexistent/gemmd.textproto: "));
}

TEST(LoadTest, DirectoryIsAnError) {
  EXPECT_EQ(LoadConfig("/tmp").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(LoadTest, PathOfTheFileStandsBeforeTheError) {
  const std::string path = testing::TempDir() + "/gemmd_load_test.textproto";
  std::ofstream(path) << WithListener("drain { notice_ms: -1 }");
  const auto config = LoadConfig(path);
  unlink(path.c_str());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(config.status().message()), StartsWith(path + ": drain.notice_ms: "));
}

TEST(LoadTest, ExamplesAreValid) {
  for (const char* example : {"cpu.textproto"}) {
    const auto config = LoadConfig(std::string(GEMMD_EXAMPLES) + "/" + example);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->listeners.size(), 2);
    EXPECT_EQ(config->tenants.size(), 2);
    EXPECT_EQ(config->metrics_address, "127.0.0.1:8471");
  }
}

TEST(LoadTest, ExampleForAGpuIsValidWhereThereIsOne) {
  const auto config = LoadConfig(std::string(GEMMD_EXAMPLES) + "/h200.textproto", {}, {"cuda:0"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices[0].name, "cuda:0");
  EXPECT_EQ(config->devices[0].tuning_table, "deploy/tuning");
}

}  // namespace
}  // namespace gemmd::server
