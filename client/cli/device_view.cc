#include "client/cli/device_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gemmd/v1/device_service.pb.h"

namespace gemmd::cli {
namespace {

Json SensorsJson(const v1::Device& device) {
  if (!device.has_sensors()) return Json();
  const v1::DeviceSensors& sensors = device.sensors();
  return {{"memory_total_bytes", sensors.memory_total_bytes()},
          {"memory_used_bytes", sensors.memory_used_bytes()},
          {"clock_mhz", sensors.clock_mhz()},
          {"memory_clock_mhz", sensors.memory_clock_mhz()},
          {"power_watts", sensors.power_watts()},
          {"power_limit_watts", sensors.power_limit_watts()},
          {"temperature_celsius", sensors.temperature_celsius()}};
}

}  // namespace

std::string StateName(const v1::Device& device) {
  switch (device.state()) {
    case v1::Device::STATE_SERVING:
      return "serving";
    case v1::Device::STATE_FENCED:
      return "fenced";
    default:
      return "unknown";
  }
}

Cell StateCell(const v1::Device& device) {
  return {StateName(device), device.state() != v1::Device::STATE_SERVING};
}

Json DeviceJson(const v1::Device& device) {
  return {{"name", device.name()},
          {"model", device.model()},
          {"architecture", device.architecture()},
          {"gpu_uuid", device.gpu_uuid()},
          {"numa_node", device.has_numa_node() ? Json(device.numa_node()) : Json()},
          {"state", StateName(device)},
          {"memory_bytes", device.memory_bytes()},
          {"used_bytes", device.used_bytes()},
          {"free_bytes", std::max<int64_t>(device.memory_bytes() - device.used_bytes(), 0)},
          {"buffers", device.buffers()},
          {"pinned_bytes", device.pinned_bytes()},
          {"queued_programs", device.queued_programs()},
          {"queued_device_seconds", device.queued_device_seconds()},
          {"busy_seconds", device.busy_seconds()},
          {"transfer_seconds", device.transfer_seconds()},
          {"programs", device.programs()},
          {"sensors", SensorsJson(device)}};
}

std::string ClockText(const v1::Device& device) {
  if (device.sensors().clock_mhz() <= 0) return "-";
  return absl::StrFormat("%.0f MHz", device.sensors().clock_mhz());
}

std::string PowerText(const v1::Device& device) {
  if (device.sensors().power_watts() <= 0) return "-";
  if (device.sensors().power_limit_watts() <= 0) {
    return absl::StrFormat("%.0f W", device.sensors().power_watts());
  }
  return absl::StrFormat("%.0f of %.0f W", device.sensors().power_watts(),
                         device.sensors().power_limit_watts());
}

std::string TemperatureText(const v1::Device& device) {
  if (device.sensors().temperature_celsius() <= 0) return "-";
  return absl::StrFormat("%.0f C", device.sensors().temperature_celsius());
}

std::string NodeText(const v1::Device& device) {
  return device.has_numa_node() ? absl::StrCat(device.numa_node()) : "-";
}

}  // namespace gemmd::cli
