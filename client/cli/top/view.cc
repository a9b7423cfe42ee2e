#include "client/cli/top/view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/args/printable.h"
#include "client/cli/device_view.h"

namespace gemmd::cli {
namespace {

std::string Percent(double share) { return absl::StrFormat("%.1f %%", share * 100); }
std::string Bytes(int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

std::string DeviceTable(const TopLoad& load) {
  std::vector<std::vector<std::string>> rows = {
      {"device", "state", "busy", "transfers", "programs/s", "queued", "queued time", "used",
       "memory", "buffers", "clock", "power", "temperature"}};
  for (const DeviceLoad& row : load.devices) {
    const v1::Device& device = row.device;
    rows.push_back({device.name(), StateName(device), Percent(row.busy), Percent(row.transfers),
                    absl::StrFormat("%.0f", row.programs_per_second),
                    absl::StrCat(device.queued_programs()),
                    HumanSeconds(device.queued_device_seconds()), Bytes(device.used_bytes()),
                    Bytes(device.memory_bytes()), absl::StrCat(device.buffers()), ClockText(device),
                    PowerText(device), TemperatureText(device)});
  }
  return Table(rows);
}

std::string TenantTable(const TopLoad& load) {
  if (load.tenants.empty()) return "";
  std::vector<std::vector<std::string>> rows = {{"tenant", "device time"}};
  for (const TenantLoad& row : load.tenants) {
    rows.push_back({row.tenant, Percent(row.device_share)});
  }
  std::string text = absl::StrCat("\n", Table(rows));
  rows = {{"queue", "waiting"}};
  for (const auto& [queue, depth] : load.queues) {
    rows.push_back({queue, absl::StrFormat("%.0f", depth)});
  }
  return absl::StrCat(text, "\n", Table(rows));
}

std::string SessionTable(const TopLoad& load, size_t max_sessions) {
  if (load.sessions.empty()) return "\nno sessions\n";
  std::vector<std::vector<std::string>> rows = {
      {"session", "label", "device", "device time", "queued", "buffers", "bytes", "plans", "peer"}};
  for (size_t i = 0; i < std::min(load.sessions.size(), max_sessions); ++i) {
    const v1::SessionInfo& session = load.sessions[i].session;
    rows.push_back({session.name(), session.label(), session.device(),
                    Percent(load.sessions[i].device_share), absl::StrCat(session.queued_programs()),
                    absl::StrCat(session.buffers()), Bytes(session.buffer_bytes()),
                    absl::StrCat(session.plans()), session.peer()});
  }
  std::string text = absl::StrCat("\n", Table(rows));
  if (load.sessions.size() > max_sessions) {
    absl::StrAppend(&text, "and ", load.sessions.size() - max_sessions, " more\n");
  }
  return text;
}

}  // namespace

std::string TopText(const TopSample& sample, const TopLoad& load, size_t max_sessions) {
  const absl::Time started = absl::FromUnixSeconds(sample.info.start_time().seconds());
  const std::string head = absl::StrCat(
      "gemmd ", Printable(sample.info.version()), ", up ",
      absl::FormatDuration(absl::Trunc(sample.at - started, absl::Seconds(1))), ", tenant ",
      Printable(sample.info.tenant()), sample.info.draining() ? ", draining" : "", ", over ",
      absl::StrFormat("%.1f s", load.seconds), "\n\n");
  return absl::StrCat(head, DeviceTable(load), TenantTable(load), SessionTable(load, max_sessions));
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
    document["sessions"].push_back({{"name", row.session.name()},
                                    {"label", row.session.label()},
                                    {"device", row.session.device()},
                                    {"device_share", row.device_share},
                                    {"queued_programs", row.session.queued_programs()},
                                    {"buffers", row.session.buffers()},
                                    {"buffer_bytes", row.session.buffer_bytes()},
                                    {"plans", row.session.plans()},
                                    {"peer", row.session.peer()}});
  }
  return document;
}

}  // namespace gemmd::cli
