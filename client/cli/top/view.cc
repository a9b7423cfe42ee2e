#include "client/cli/top/view.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/device_view.h"
#include "client/cli/document.h"

namespace gemmd::cli {
namespace {

std::string Percent(double share) { return absl::StrFormat("%.1f %%", share * 100); }
std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

void AddDevices(const TopLoad& load, Page& page) {
  std::vector<Row> rows = {{"device", "state", "busy", "transfers", "programs/s", "queued",
                            "queued time", "used", "memory", "buffers", "clock", "power",
                            "temperature"}};
  for (const DeviceLoad& row : load.devices) {
    const v1::Device& device = row.device;
    rows.push_back({device.name(), StateCell(device), Percent(row.busy), Percent(row.transfers),
                    absl::StrFormat("%.0f", row.programs_per_second),
                    absl::StrCat(device.queued_programs()),
                    HumanSeconds(device.queued_device_seconds()), Bytes(device.used_bytes()),
                    Bytes(device.memory_bytes()), absl::StrCat(device.buffers()), ClockText(device),
                    PowerText(device), TemperatureText(device)});
  }
  page.Table(std::move(rows), {0, 0, 0, 4, 1, 1, 6, 0, 1, 5, 7, 2, 3});
}

void AddTenants(const TopLoad& load, Page& page) {
  if (load.tenants.empty()) return;
  std::vector<Row> rows = {{"tenant", "device time"}};
  for (const TenantLoad& row : load.tenants) {
    rows.push_back({row.tenant, Percent(row.device_share)});
  }
  page.Line("");
  page.Table(std::move(rows));
  rows = {{"queue", "waiting"}};
  for (const auto& [queue, depth] : load.queues) {
    rows.push_back({queue, absl::StrFormat("%.0f", depth)});
  }
  page.Line("");
  page.Table(std::move(rows));
}

void AddSessions(const TopLoad& load, size_t max_sessions, Page& page) {
  page.Line("");
  if (load.sessions.empty()) return page.Line("no sessions");
  std::vector<Row> rows = {
      {"session", "label", "device", "device time", "queued", "buffers", "bytes", "plans", "peer"}};
  for (size_t i = 0; i < std::min(load.sessions.size(), max_sessions); ++i) {
    const v1::SessionInfo& session = load.sessions[i].session;
    rows.push_back({session.name(), session.label(), session.device(),
                    Percent(load.sessions[i].device_share), absl::StrCat(session.queued_programs()),
                    absl::StrCat(session.buffers()), Bytes(session.buffer_bytes()),
                    absl::StrCat(session.plans()), session.peer()});
  }
  page.Table(std::move(rows), {0, 0, 2, 0, 1, 3, 0, 4, 5});
  if (load.sessions.size() > max_sessions) {
    page.Line(absl::StrCat("and ", load.sessions.size() - max_sessions, " more"));
  }
}

}  // namespace

Page TopPage(const TopSample& sample, const TopLoad& load, size_t max_sessions) {
  const absl::Time started = absl::FromUnixSeconds(sample.info.start_time().seconds());
  Page page;
  page.Line(absl::StrCat("gemmd ", sample.info.version(), ", up ",
                         absl::FormatDuration(absl::Trunc(sample.at - started, absl::Seconds(1))),
                         ", tenant ", sample.info.tenant(),
                         sample.info.draining() ? ", draining" : "", ", over ",
                         absl::StrFormat("%.1f s", load.seconds)));
  page.Line("");
  AddDevices(load, page);
  AddTenants(load, page);
  AddSessions(load, max_sessions, page);
  return page;
}

Json TopJson(const TopSample& sample, const TopLoad& load) {
  Json document = {{"version", sample.info.version()}, {"instance_id", sample.info.instance_id()},
                   {"tenant", sample.info.tenant()},   {"draining", sample.info.draining()},
                   {"seconds", load.seconds},          {"devices", Json::array()},
                   {"tenants", Json::array()},         {"queues", Json::array()},
                   {"sessions", Json::array()}};
  for (const DeviceLoad& row : load.devices) {
    Json device = DeviceJson(row.device);
    device["busy"] = row.busy;
    device["transfers"] = row.transfers;
    device["programs_per_second"] = row.programs_per_second;
    document["devices"].push_back(std::move(device));
  }
  for (const TenantLoad& row : load.tenants) {
    document["tenants"].push_back({{"tenant", row.tenant}, {"device_share", row.device_share}});
  }
  for (const auto& [queue, depth] : load.queues) {
    document["queues"].push_back({{"queue", queue}, {"waiting", depth}});
  }
  for (const SessionLoad& row : load.sessions) {
    Json session = DocumentOf(row.session);
    session["device_share"] = row.device_share;
    document["sessions"].push_back(std::move(session));
  }
  return document;
}

}  // namespace gemmd::cli
