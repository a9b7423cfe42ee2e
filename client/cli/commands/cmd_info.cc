#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/args/output.h"
#include "client/cli/args/page.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/device_view.h"
#include "client/cli/document.h"
#include "gemmd/v1/device_service.pb.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

// 0 is no limit of its own: what the devices have is the limit.
std::string LimitText(int64_t max_buffer_bytes) {
  if (max_buffer_bytes == 0) return "";
  return absl::StrCat(" of ", HumanBytes(static_cast<double>(max_buffer_bytes)), " in all");
}

// How callers that work on a GPU themselves share it with the server; nothing without one.
std::string SharingText(const v1::ServerInfo& info, const std::vector<v1::Device>& devices) {
  const auto is_gpu = [](const v1::Device& device) { return !device.gpu_uuid().empty(); };
  if (std::none_of(devices.begin(), devices.end(), is_gpu)) return "";
  return info.under_mps() ? "MPS: callers run beside the server"
                          : "time slices: callers take turns with the server, see MPS in "
                            "docs/operations.md";
}

void AddDevices(const std::vector<v1::Device>& devices, const std::vector<v1::Kernel>& kernels,
                Page& page) {
  std::vector<Row> rows = {{"device", "state", "memory", "used", "free", "buffers", "kernels",
                            "queued", "programs", "busy", "clock", "power", "temperature", "node",
                            "architecture", "model"}};
  for (const v1::Device& device : devices) {
    const int64_t free_bytes = std::max<int64_t>(device.memory_bytes() - device.used_bytes(), 0);
    const auto is_its = [&](const v1::Kernel& kernel) { return kernel.device() == device.name(); };
    rows.push_back(
        {device.name(), StateCell(device), HumanBytes(static_cast<double>(device.memory_bytes())),
         HumanBytes(static_cast<double>(device.used_bytes())),
         HumanBytes(static_cast<double>(free_bytes)), absl::StrCat(device.buffers()),
         absl::StrCat(std::count_if(kernels.begin(), kernels.end(), is_its)),
         absl::StrCat(device.queued_programs()), absl::StrCat(device.programs()),
         HumanSeconds(device.busy_seconds()), ClockText(device), PowerText(device),
         TemperatureText(device), NodeText(device), device.architecture(), device.model()});
  }
  page.Table(std::move(rows), {0, 0, 0, 0, 4, 6, 7, 3, 8, 9, 10, 5, 5, 11, 2, 1});
}

Page InfoPage(const v1::ServerInfo& info, const std::vector<v1::Device>& devices,
              const std::vector<v1::Kernel>& kernels, const std::string& target, bool same_host) {
  Page page;
  const auto add = [&](absl::string_view name, absl::string_view value) {
    if (!value.empty()) page.Line(absl::StrFormat("%-11s  %s", name, value), 13);
  };
  page.Line(
      absl::StrCat("gemmd ", info.version(), " at ", target, ", instance ", info.instance_id()));
  const std::string started = TimeText(info.start_time());
  add("started", absl::StrCat(started, info.draining() ? ", draining" : ""));
  add("tenant", info.tenant());
  add("transfers", same_host ? "shared memory" : "gRPC");
  add("GPU sharing", SharingText(info, devices));
  const v1::Limits& limits = info.limits();
  add("limits", absl::StrCat(limits.max_sessions(), " sessions, ", limits.max_buffers(), " buffers",
                             LimitText(limits.max_buffer_bytes()), ", ",
                             limits.max_queued_programs(), " programs queued, messages of ",
                             HumanBytes(static_cast<double>(limits.max_message_bytes()))));
  page.Line("");
  AddDevices(devices, kernels, page);
  return page;
}

absl::Status RunInfo(Invocation& call) {
  const std::string target = call.args.Text("server");
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  GEMMD_ASSIGN_OR_RETURN(v1::ServerInfo info, client.GetServerInfo());
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::Device> devices, client.ListDevices());
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::Kernel> kernels, client.ListKernels());
  const bool same_host = client.SharesHost();
  Json document = {{"server", target}};
  document.update(DocumentOf(info));
  document["same_host"] = same_host;
  document["devices"] = Json::array();
  for (const v1::Device& device : devices) document["devices"].push_back(DeviceJson(device));
  call.out.Result(document, InfoPage(info, devices, kernels, target, same_host));
  return absl::OkStatus();
}

}  // namespace

const Command kInfoCommand = {
    .name = "info",
    .summary = "show the server, its limits and its devices",
    .details =
        "Memory is what buffers may take. Clock, power and temperature are what a GPU's "
        "driver says at that moment. Node is the host's NUMA node that a GPU hangs on and that the "
        "server's threads for it are bound to. 'gemmctl kernels' lists the kernels.",
    .run = RunInfo};

}  // namespace gemmd::cli
