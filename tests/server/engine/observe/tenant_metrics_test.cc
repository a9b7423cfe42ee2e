// What a scrape tells of tenants, by a server without a wire.

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/reason.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TenantMetricsTest : public StateTest {
 protected:
  // "gemmd_tenant_sessions{tenant="red"} 2" is a line of a scrape.
  void ExpectLine(const std::string& line) {
    EXPECT_TRUE(absl::StrContains(metrics_.Text(), absl::StrCat("\n", line, "\n"))) << line;
  }
};

TEST_F(TenantMetricsTest, EveryTenantIsThereFromTheStart) {
  for (const char* tenant : {"red", "blue"}) {
    const std::string label = absl::StrCat("{tenant=\"", tenant, "\"} 0");
    ExpectLine("gemmd_tenant_sessions" + label);
    ExpectLine("gemmd_tenant_buffer_bytes" + label);
    ExpectLine("gemmd_tenant_queued_device_seconds" + label);
  }
}

TEST_F(TenantMetricsTest, WhatATenantHoldsIsItsOwn) {
  auto session = Open(*red_);
  Open(*red_);
  AddBuffer(*session, 4096);
  ExpectLine("gemmd_tenant_sessions{tenant=\"red\"} 2");
  ExpectLine("gemmd_tenant_buffer_bytes{tenant=\"red\"} 4096");
  ExpectLine("gemmd_tenant_sessions{tenant=\"blue\"} 0");
  session.reset();
  state_->sessions().EndAll(EndCause::kClosed);
  ExpectLine("gemmd_tenant_sessions{tenant=\"red\"} 0");
  ExpectLine("gemmd_tenant_buffer_bytes{tenant=\"red\"} 0");
}

TEST_F(TenantMetricsTest, QueuedTimeIsThatOfProgramsNotFinished) {
  {
    const auto charge = blue_->TakeDeviceTime(absl::Milliseconds(1500));
    ASSERT_TRUE(charge.ok()) << charge.status();
    ExpectLine("gemmd_tenant_queued_device_seconds{tenant=\"blue\"} 1.5");
    ExpectLine("gemmd_tenant_queued_device_seconds{tenant=\"red\"} 0");
  }
  ExpectLine("gemmd_tenant_queued_device_seconds{tenant=\"blue\"} 0");
}

TEST_F(TenantMetricsTest, ATenantOfAReloadIsThereAtOnce) {
  Config config;
  config.tenants = {{.name = "red"}, {.name = "blue"}, {.name = "green"}};
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("green")));
  state_->Reconfigure(config);
  ExpectLine("gemmd_tenant_sessions{tenant=\"green\"} 0");
}

TEST_F(TenantMetricsTest, RefusalsAreCountedByTenantAndReason) {
  state_->CountRejection(*red_,
                         WithReason(absl::ResourceExhaustedError("full"), reason::kSessionLimit));
  state_->CountRejection(*red_, WithReason(absl::UnavailableError("later"), reason::kDraining));
  state_->CountRejection(*blue_, absl::DeadlineExceededError("too late"));
  ExpectLine("gemmd_tenant_rejected_total{reason=\"SESSION_LIMIT\",tenant=\"red\"} 1");
  ExpectLine("gemmd_tenant_rejected_total{reason=\"DRAINING\",tenant=\"red\"} 1");
  ExpectLine("gemmd_tenant_rejected_total{reason=\"DEADLINE\",tenant=\"blue\"} 1");
  ExpectLine("gemmd_rejected_total{reason=\"SESSION_LIMIT\"} 1");
  ExpectLine("gemmd_rejected_total{reason=\"DEADLINE\"} 1");
}

TEST_F(TenantMetricsTest, WhatIsNoRefusalIsNotCounted) {
  for (const absl::Status& status :
       {absl::OkStatus(), absl::InvalidArgumentError("bad"), absl::NotFoundError("none"),
        absl::InternalError("ours"), absl::CancelledError("gone")}) {
    state_->CountRejection(*red_, status);
  }
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("gemmd_tenant_rejected_total")));
}

TEST_F(TenantMetricsTest, ADrainShows) {
  ExpectLine("gemmd_draining 0");
  state_->set_draining();
  ExpectLine("gemmd_draining 1");
}

TEST_F(TenantMetricsTest, DevicesTellTheirMemoryAndKernels) {
  ExpectLine(absl::StrCat("gemmd_device_memory_bytes{device=\"fake:1\"} ", 1 << 30));
  ExpectLine("gemmd_kernels{device=\"fake:0\",state=\"enabled\"} 1");
  ExpectLine("gemmd_kernels{device=\"fake:0\",state=\"disabled\"} 0");
  ExpectLine("gemmd_kernels{device=\"fake:0\",state=\"quarantined\"} 1");
}

// A scrape may come at any time, as the server goes too.
TEST_F(TenantMetricsTest, AScrapeAfterTheServerIsGoneHasNoTenants) {
  state_.reset();
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, Not(HasSubstr("gemmd_tenant_sessions")));
  EXPECT_THAT(text, HasSubstr("gemmd_build_info"));
}

}  // namespace
}  // namespace gemmd::server
