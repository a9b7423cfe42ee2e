// What is read of a server's state at each scrape.

#pragma once

#include <vector>

#include "server/engine/observe/exposition.h"

namespace gemmd::kernels {
struct DeviceInfo;
}  // namespace gemmd::kernels

namespace gemmd::server {

class DeviceTuner;
class TenantDirectory;

// What a device is and what its instruments say: gemmd_device_memory_bytes,
// gemmd_device_peak_flops, and where it has sensors gemmd_device_clock_hz,
// gemmd_device_power_watts, gemmd_device_temperature_celsius.
void ReadDevices(const std::vector<const kernels::DeviceInfo*>& devices, Families& families);

// What each tenant holds now: gemmd_tenant_sessions, gemmd_tenant_buffer_bytes,
// gemmd_tenant_queued_device_seconds. Tenants come from the operator's config, so the number of
// series is the operator's too.
void ReadTenants(const TenantDirectory& tenants, Families& families);

// What tuners have done and what it is worth: gemmd_tuning_shapes, gemmd_tuning_measured_total,
// gemmd_tuning_device_seconds_total, gemmd_tuning_files_total, gemmd_tuning_calls_total. Nothing
// where no device can be tuned.
void ReadTuning(const std::vector<const DeviceTuner*>& tuners, Families& families);

}  // namespace gemmd::server
