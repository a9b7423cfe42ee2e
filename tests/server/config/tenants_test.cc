#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

TEST(TenantsTest, NamesAreShortAndPlain) {
  const std::string longest(32, 'a');
  const Config config =
      ConfigOf(absl::StrCat("tenants { name: \"", longest, "\" } tenants { name: \"default\" }"));
  EXPECT_EQ(config.tenants[0].name, longest);
  ExpectErrors({
      {"tenants { }", "tenants[0].name", {"\"\"", "1 to 32"}},
      {"tenants { name: \"Batch\" }", "tenants[0].name", {"\"Batch\"", "a-z"}},
      {"tenants { name: \"a\\nb\" }", "tenants[0].name", {"\"a\\nb\""}},
      {"tenants { name: \"" + std::string(33, 'a') + "\" }", "tenants[0].name", {"32"}},
  });
}

TEST(TenantsTest, NamesAreUnique) {
  ExpectErrors({{"tenants { name: \"default\" } tenants { name: \"default\" }",
                 "tenants[1].name",
                 {"\"default\"", "taken"}}});
}

TEST(TenantsTest, WeightsHaveBounds) {
  const Config config = ConfigOf(
      "tenants { name: \"default\" weight: 0.01 }"
      "tenants { name: \"b\" weight: 100 } tenants { name: \"c\" }");
  EXPECT_EQ(config.tenants[0].weight, 0.01);
  EXPECT_EQ(config.tenants[1].weight, 100);
  EXPECT_EQ(config.tenants[2].weight, 1);
  const auto weight = [](const char* value) {
    return absl::StrCat("tenants { name: \"default\" weight: ", value, " }");
  };
  ExpectErrors({
      {weight("0.001"), "tenants[0].weight", {"0.001 is below 0.01", "between 0.01 and 100"}},
      {weight("100.5"), "tenants[0].weight", {"100.5 is above 100"}},
      {weight("-1"), "tenants[0].weight", {"-1 is below 0.01"}},
      {weight("inf"), "tenants[0].weight", {"inf is above 100"}},
      {weight("nan"), "tenants[0].weight", {"nan is not a number"}},
  });
}

TEST(TenantsTest, ListenersNeedATenantThatExists) {
  const auto config = ParseConfig(
      "listeners { address: \"127.0.0.1:0\" tenant: \"b\" }"
      "tenants { name: \"a\" } tenants { name: \"b\" }");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->listeners[0].tenant, "b");
  // ErrorOf's listener is for "default".
  ExpectErrors({{"tenants { name: \"a\" }", "listeners[0].tenant", {"\"default\"", "tenants {"}}});
}

TEST(TenantsTest, ListenersWhoseCallersBringTheirTenantNeedNone) {
  const auto config = ParseConfig(
      "listeners { address: \"127.0.0.1:0\" credentials: CREDENTIAL_TOKEN }"
      "listeners { address: \"0.0.0.0:0\" health_only: true }"
      "tenants { name: \"a\" } tenants { name: \"b\" } auth { token_file: \"tokens\" }");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->listeners[0].tenant, "a");
  ExpectErrors({{"listeners { address: \"[::1]:0\" tenant: \"b\" health_only: true }",
                 "listeners[1].tenant",
                 {"\"b\"", "not one of tenants"}}});
}

TEST(TenantsTest, WithoutTenantsOnlyDefaultExists) {
  ExpectErrors({{"listeners { address: \"127.0.0.1:0\" tenant: \"b\" }",
                 "listeners[1].tenant",
                 {"\"b\"", "not one of tenants"}}});
}

}  // namespace
}  // namespace gemmd::server
