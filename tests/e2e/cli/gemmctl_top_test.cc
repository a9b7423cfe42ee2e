// `gemmctl top` against a real daemon.

#include <nlohmann/json.hpp>

#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(GemmctlTopTest, OnceShowsDevicesTenantsQueuesAndSessions) {
  Daemon daemon({.config = "tenants { name: \"default\" } tenants { name: \"small\" } "
                           "tenants { name: \"large\" }",
                 .tenants = {"small", "large"}});
  client::Client client = ConnectTo(daemon);
  client::Session session = Must(client.OpenSession({.label = "watched"}));
  client::Buffer buffer = MakeBuffer(session, {256, 256});
  std::vector<std::string> command = {GEMMCTL_PATH, "top",      "--once",       "--interval",
                                      "200ms",      "--server", daemon.target()};
  const Finished plain = RunToEnd(command);
  ASSERT_EQ(plain.status, 0) << plain.err;
  EXPECT_THAT(plain.out, AllOf(HasSubstr(TestDevice()), HasSubstr("watched"), HasSubstr("busy")));

  command.insert(command.end(), {"--json", "--metrics", daemon.metrics_address()});
  const Finished done = RunToEnd(command);
  ASSERT_EQ(done.status, 0) << done.err;
  const json document = json::parse(done.out);
  EXPECT_EQ(document["devices"][0]["name"], TestDevice());
  EXPECT_GE(document["devices"][0]["used_bytes"], 256 * 256 * 4);
  EXPECT_EQ(document["sessions"][0]["label"], "watched");
  EXPECT_GT(document["queues"].size(), 0u);
}

TEST(GemmctlTopTest, AMetricsAddressThatIsNoneIsToldSo) {
  Daemon daemon;
  const Finished done = RunToEnd(
      {GEMMCTL_PATH, "top", "--once", "--metrics", "127.0.0.1:1", "--server", daemon.target()});
  EXPECT_EQ(done.status, 4);
  EXPECT_THAT(done.err, HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace gemmd::e2e
