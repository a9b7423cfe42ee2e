#include "client/cli/device_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/document.h"
#include "gemmd/v1/device_service.pb.h"

namespace gemmd::cli {
Cell StateCell(const v1::Device& device) {
  return {NameOf(device.state()), device.state() != v1::Device::STATE_SERVING};
}

Json DeviceJson(const v1::Device& device) {
  Json document = DocumentOf(device);
  document["free_bytes"] = std::max<int64_t>(device.memory_bytes() - device.used_bytes(), 0);
  return document;
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
