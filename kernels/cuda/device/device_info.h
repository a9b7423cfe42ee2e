// What a GPU is: whether this build's kernels run on it, and what the backend tells of it.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/device_traits.h"
#include "kernels/cuda/device/host_node.h"

namespace gemmd::kernels::cuda {

// The traits of device `ordinal`, called `name` in messages. FAILED_PRECONDITION, with the remedy,
// when the machine has no driver, too old a driver, no such device, or one that is not sm_90.
// INVALID_ARGUMENT for a negative ordinal.
absl::StatusOr<DeviceTraits> FindDevice(const std::string& name, int ordinal);

// `memory_bytes` 0 takes what is free now, less a reserve for code, workspaces and scratch. Makes
// the device's context when there is none yet.
absl::StatusOr<DeviceInfo> DescribeGpu(const std::string& name, const DeviceTraits& traits,
                                       int64_t memory_bytes);

// Where the device is near, of what the calling thread may use.
HostNode FindHostNode(const DeviceTraits& traits);

}  // namespace gemmd::kernels::cuda
