#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

TEST(AuthTest, RulesHaveDefaults) {
  const Config config = ConfigOf(R"(
      tenants { name: "default" } tenants { name: "red" }
      auth { token_file: "/run/tokens"
             certificates { name: "spiffe://a/b" tenant: "red" role: ROLE_ADMIN }
             certificates { name: "b" }
             unix_peers { uid: 0 role: ROLE_OBSERVER } })");
  EXPECT_EQ(config.auth.token_file, "/run/tokens");
  const std::vector<PrincipalConfig> certificates = {
      {.name = "spiffe://a/b", .tenant = "red", .role = Role::kAdmin}, {.name = "b"}};
  EXPECT_EQ(config.auth.certificates, certificates);
  const std::vector<PrincipalConfig> peers = {{.uid = 0, .role = Role::kObserver}};
  EXPECT_EQ(config.auth.unix_peers, peers);
}

TEST(AuthTest, RulesThatCannotBeMeantAreRefused) {
  ExpectErrors({
      {"auth { certificates { } }", "auth.certificates[0].name", {"0 bytes", "1 to 256"}},
      {"auth { certificates { name: \"a\" } certificates { name: \"a\" } }",
       "auth.certificates[1].name",
       {"\"a\"", "taken"}},
      {"auth { certificates { name: \"a\" tenant: \"red\" } }",
       "auth.certificates[0].tenant",
       {"red", "add tenants"}},
      {"auth { certificates { name: \"a\" role: 7 } }", "auth.certificates[0].role", {"7"}},
      {"auth { unix_peers { uid: -1 } }", "auth.unix_peers[0].uid", {"-1", "4294967294"}},
      {"auth { unix_peers { uid: 4294967295 } }", "auth.unix_peers[0].uid", {"4294967295"}},
      {"auth { unix_peers { uid: 5 } unix_peers { uid: 5 } }",
       "auth.unix_peers[1].uid",
       {"5", "taken"}},
  });
}

TEST(AuthTest, LimitsOfTimeAndRateAreOffByDefault) {
  const Limits none = ConfigOf("").tenants[0].limits;
  EXPECT_EQ(none.max_queued_device_time, absl::InfiniteDuration());
  EXPECT_EQ(none.max_upload_bytes_per_second, 0);
  const Limits some =
      ConfigOf("limits { max_queued_device_ms: 500 max_upload_bytes_per_second: 1000000 }")
          .tenants[0]
          .limits;
  EXPECT_EQ(some.max_queued_device_time, absl::Milliseconds(500));
  EXPECT_EQ(some.max_upload_bytes_per_second, 1000000);
  ExpectErrors({{"limits { max_upload_bytes_per_second: 5 }",
                 "limits.max_upload_bytes_per_second",
                 {"5", "65536"}},
                {"limits { max_queued_device_ms: 86400001 }",
                 "limits.max_queued_device_ms",
                 {"86400001", "86400000"}}});
}

}  // namespace
}  // namespace gemmd::server
