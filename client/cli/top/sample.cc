#include "client/cli/top/sample.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

double PerSecond(double before, double after, double seconds) {
  return seconds > 0 ? std::max(after - before, 0.0) / seconds : 0;
}

double TenantSeconds(const TopSample& sample, const std::string& tenant) {
  const auto [begin, end] = sample.metrics.equal_range("gemmd_tenant_device_seconds_total");
  for (auto it = begin; it != end; ++it) {
    const auto label = it->second.labels.find("tenant");
    if (label != it->second.labels.end() && label->second == tenant) return it->second.value;
  }
  return 0;
}

std::string Label(const MetricSample& sample, const std::string& name) {
  const auto found = sample.labels.find(name);
  return found == sample.labels.end() ? "" : found->second;
}

}  // namespace

absl::StatusOr<TopSample> Look(client::Client& client, const std::string& metrics) {
  TopSample sample = {.at = absl::Now()};
  GEMMD_ASSIGN_OR_RETURN(v1::ServerInfo info, client.GetServerInfo());
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::Device> devices, client.ListDevices());
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::SessionInfo> sessions, client.ListSessions());
  sample.info = std::move(info);
  sample.devices = std::move(devices);
  sample.sessions = std::move(sessions);
  if (metrics.empty()) return sample;
  GEMMD_ASSIGN_OR_RETURN(sample.metrics, Scrape(metrics));
  return sample;
}

TopLoad LoadBetween(const TopSample& before, const TopSample& after) {
  TopLoad load = {.seconds = absl::ToDoubleSeconds(after.at - before.at)};
  for (const v1::Device& device : after.devices) {
    DeviceLoad row = {.device = device};
    for (const v1::Device& earlier : before.devices) {
      if (earlier.name() != device.name()) continue;
      row.busy = PerSecond(earlier.busy_seconds(), device.busy_seconds(), load.seconds);
      row.transfers =
          PerSecond(earlier.transfer_seconds(), device.transfer_seconds(), load.seconds);
      row.programs_per_second = PerSecond(static_cast<double>(earlier.programs()),
                                          static_cast<double>(device.programs()), load.seconds);
    }
    load.devices.push_back(std::move(row));
  }
  for (const v1::SessionInfo& session : after.sessions) {
    // One that was not there before has used all of its time since.
    double earlier_seconds = 0;
    for (const v1::SessionInfo& earlier : before.sessions) {
      if (earlier.name() == session.name()) earlier_seconds = earlier.device_seconds();
    }
    load.sessions.push_back(
        {session, PerSecond(earlier_seconds, session.device_seconds(), load.seconds)});
  }
  const auto [begin, end] = after.metrics.equal_range("gemmd_tenant_device_seconds_total");
  for (auto it = begin; it != end; ++it) {
    const std::string tenant = Label(it->second, "tenant");
    load.tenants.push_back(
        {tenant, PerSecond(TenantSeconds(before, tenant), it->second.value, load.seconds)});
  }
  const auto [depth, depth_end] = after.metrics.equal_range("gemmd_queue_depth");
  for (auto it = depth; it != depth_end; ++it) {
    load.queues.emplace_back(
        absl::StrCat(Label(it->second, "device"), " ", Label(it->second, "priority")),
        it->second.value);
  }
  const auto busier = [](const auto& a, const auto& b) { return a.device_share > b.device_share; };
  std::stable_sort(load.tenants.begin(), load.tenants.end(), busier);
  std::stable_sort(load.sessions.begin(), load.sessions.end(), busier);
  return load;
}

}  // namespace gemmd::cli
