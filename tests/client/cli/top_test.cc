#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/top/sample.h"
#include "client/cli/top/scrape.h"
#include "client/cli/top/view.h"

namespace gemmd::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ScrapeTest, ReadsSeriesWithAndWithoutLabels) {
  const MetricSamples samples = ParseMetrics(
      "# HELP gemmd_sessions Sessions open.\n# TYPE gemmd_sessions gauge\ngemmd_sessions 3\n"
      "gemmd_queue_depth{device=\"cuda:0\",priority=\"high\"} 2.5\n"
      "gemmd_build_info{version=\"a \\\"b\\\" c\"} 1\r\n"
      "broken{a=\"b} 1\nno_value\nalso{a=b} 1\nnan_is_one NaN\n");
  EXPECT_EQ(samples.size(), 4u);
  EXPECT_EQ(samples.find("gemmd_sessions")->second.value, 3);
  const MetricSample& depth = samples.find("gemmd_queue_depth")->second;
  EXPECT_EQ(depth.value, 2.5);
  EXPECT_EQ(depth.labels.at("device"), "cuda:0");
  EXPECT_EQ(depth.labels.at("priority"), "high");
  EXPECT_EQ(samples.find("gemmd_build_info")->second.labels.at("version"), "a \"b\" c");
}

TEST(ScrapeTest, NobodyThereIsUnavailable) {
  for (const char* address : {"127.0.0.1:1", "nonsense", "[::1]:1"}) {
    EXPECT_EQ(Scrape(address).status().code(), absl::StatusCode::kUnavailable) << address;
  }
}

v1::Device Device(const std::string& name, double busy_seconds, int64_t programs) {
  v1::Device device;
  device.set_name(name);
  device.set_state(v1::Device::STATE_SERVING);
  device.set_busy_seconds(busy_seconds);
  device.set_programs(programs);
  return device;
}

v1::SessionInfo Session(const std::string& name, double device_seconds) {
  v1::SessionInfo session;
  session.set_name(name);
  session.set_device_seconds(device_seconds);
  return session;
}

TEST(TopTest, LoadIsWhatCameBetweenTwoLooks) {
  v1::Device copies = Device("cuda:0", 6.5, 1600);
  copies.set_transfer_seconds(0.5);
  TopSample before = {
      .at = absl::FromUnixSeconds(100),
      .devices = {Device("cuda:0", 5, 1000), Device("cuda:1", 9, 50)},
      .sessions = {Session("s-1", 4), Session("s-2", 1)},
      .metrics = ParseMetrics("gemmd_tenant_device_seconds_total{tenant=\"a\"} 3\n")};
  TopSample after = {
      .at = absl::FromUnixSeconds(102),
      .devices = {copies, Device("cuda:1", 0, 0)},
      .sessions = {Session("s-1", 4.5), Session("s-3", 1)},
      .metrics = ParseMetrics("gemmd_tenant_device_seconds_total{tenant=\"a\"} 3.5\n"
                              "gemmd_tenant_device_seconds_total{tenant=\"b\"} 1\n"
                              "gemmd_queue_depth{device=\"cuda:0\",priority=\"low\"} 7\n")};
  const TopLoad load = LoadBetween(before, after);
  EXPECT_DOUBLE_EQ(load.seconds, 2);
  ASSERT_EQ(load.devices.size(), 2u);
  EXPECT_DOUBLE_EQ(load.devices[0].busy, 0.75);
  EXPECT_DOUBLE_EQ(load.devices[0].transfers, 0.25);
  EXPECT_DOUBLE_EQ(load.devices[0].programs_per_second, 300);
  EXPECT_EQ(load.devices[1].busy, 0);  // started anew
  ASSERT_EQ(load.sessions.size(), 2u);
  EXPECT_EQ(load.sessions[0].session.name(), "s-3");
  EXPECT_DOUBLE_EQ(load.sessions[0].device_share, 0.5);
  EXPECT_DOUBLE_EQ(load.sessions[1].device_share, 0.25);
  ASSERT_EQ(load.tenants.size(), 2u);
  EXPECT_EQ(load.tenants[0].tenant, "b");
  EXPECT_DOUBLE_EQ(load.tenants[1].device_share, 0.25);

  const std::string text = TopPage(after, load, 1).Shown({});
  EXPECT_THAT(text, AllOf(HasSubstr("75.0 %"), HasSubstr("transfers"), HasSubstr("cuda:0 low"),
                          HasSubstr("and 1 more")));
  const Json document = TopJson(after, load);
  EXPECT_DOUBLE_EQ(document["devices"][0]["busy"].get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(document["devices"][0]["transfers"].get<double>(), 0.25);
  EXPECT_EQ(document["sessions"].size(), 2u);
  EXPECT_EQ(document["queues"][0]["waiting"], 7);
}

}  // namespace
}  // namespace gemmd::cli
