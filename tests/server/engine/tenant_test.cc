#include "server/engine/sessions/tenant.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/reason.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

TEST(ChargeTest, GivesBackOnDestruction) {
  Quota quota;
  {
    auto charge = Charge::Take(quota, 7, 10);
    ASSERT_TRUE(charge.has_value());
    EXPECT_EQ(quota.used(), 7);
  }
  EXPECT_EQ(quota.used(), 0);
}

TEST(ChargeTest, TakesUpToTheLimitAndNoMore) {
  Quota quota;
  auto most = Charge::Take(quota, 10, 10);
  EXPECT_TRUE(most.has_value());
  EXPECT_FALSE(Charge::Take(quota, 1, 10).has_value());
  most->Release();
  EXPECT_TRUE(Charge::Take(quota, 1, 10).has_value());
}

TEST(ChargeTest, HugeAmountsDoNotWrapAround) {
  Quota quota;
  auto some = Charge::Take(quota, 5, 10);
  EXPECT_FALSE(Charge::Take(quota, INT64_MAX, 10).has_value());
  EXPECT_EQ(quota.used(), 5);
}

TEST(ChargeTest, NoLimitMeansUnlimited) {
  Quota quota;
  auto charge = Charge::Take(quota, int64_t{1} << 60, 0);
  EXPECT_TRUE(charge.has_value());
}

TEST(ChargeTest, MovingMovesTheDebt) {
  Quota quota;
  auto first = Charge::Take(quota, 3, 10);
  auto second = Charge::Take(quota, 4, 10);
  *first = *std::move(second);
  EXPECT_EQ(quota.used(), 4);
  first->Release();
  EXPECT_EQ(quota.used(), 0);
}

TEST(TenantTest, RefusalNamesUseLimitAndRemedy) {
  Tenant tenant(0, {.name = "red", .limits = {.max_buffer_bytes = 100}});
  auto most = tenant.TakeBufferBytes(90);
  ASSERT_TRUE(most.ok());
  const auto refused = tenant.TakeBufferBytes(11);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused.status()), "BUFFER_BYTES_LIMIT");
  const std::string message(refused.status().message());
  for (const char* part : {"red", "90", "11", "100", "delete"})
    EXPECT_THAT(message, HasSubstr(part));
}

TEST(TenantTest, QueuedDeviceTimeIsBoundedButOneProgramAlwaysFits) {
  TenantConfig config;
  config.limits.max_queued_device_time = absl::Milliseconds(10);
  Tenant tenant(0, config);
  {
    const auto alone = tenant.TakeDeviceTime(absl::Seconds(5));
    EXPECT_TRUE(alone.ok()) << alone.status();
    EXPECT_FALSE(tenant.TakeDeviceTime(absl::Microseconds(1)).ok());
  }
  const auto first = tenant.TakeDeviceTime(absl::Milliseconds(6));
  EXPECT_TRUE(first.ok());
  const auto second = tenant.TakeDeviceTime(absl::Milliseconds(6));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(second.status()), "QUEUED_TIME_LIMIT");
  for (const char* part : {"6ms", "10ms", "retry"}) {
    EXPECT_NE(second.status().message().find(part), std::string::npos) << second.status();
  }
  EXPECT_TRUE(tenant.TakeDeviceTime(absl::Milliseconds(4)).ok());
}

TEST(TenantTest, ReconfigureChangesLimitsAtOnce) {
  Tenant tenant(0, {.name = "red", .limits = {.max_sessions = 1}});
  const Limits& before = tenant.limits();
  auto first = tenant.TakeSession();
  EXPECT_FALSE(tenant.TakeSession().ok());
  tenant.Reconfigure({.name = "red", .weight = 2.0, .limits = {.max_sessions = 2}});
  EXPECT_TRUE(tenant.TakeSession().ok());
  EXPECT_EQ(tenant.weight(), 2.0);
  EXPECT_EQ(before.max_sessions, 1);  // still readable by who had it
}

TEST(TenantDirectoryTest, FindsByNameAndKeepsTenantsOnReload) {
  TenantDirectory directory(std::vector<TenantConfig>{{.name = "a"}, {.name = "b"}});
  Tenant* a = directory.Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(directory.Find("c"), nullptr);
  directory.Reconfigure(std::vector<TenantConfig>{{.name = "c"}, {.name = "a", .weight = 5}});
  EXPECT_EQ(directory.Find("a"), a);
  EXPECT_EQ(a->weight(), 5);
  EXPECT_NE(directory.Find("b"), nullptr);
  EXPECT_EQ(directory.Find("c")->index(), 2);
  EXPECT_EQ(directory.All().size(), 3);
}

TEST(ReasonTest, TheFirstReasonStays) {
  const absl::Status once = WithReason(absl::NotFoundError("x"), reason::kBufferGone);
  EXPECT_EQ(ReasonOf(WithReason(once, reason::kPlanGone)), "BUFFER_GONE");
  EXPECT_EQ(ReasonOf(absl::InvalidArgumentError("x")), "INVALID");
  EXPECT_EQ(ReasonOf(absl::InternalError("x")), "INTERNAL");
  EXPECT_EQ(ReasonOf(absl::OkStatus()), "");
}

}  // namespace
}  // namespace gemmd::server
