// What this process may use of the machine: cores, memory, instruction set.

#pragma once

#include <cstdint>
#include <string>

#include "kernels/backend.h"

namespace gemmd::kernels::cpu {

// The smaller of the affinity mask and the cgroups' CPU quota (rounded up), at least 1: more
// threads than that take turns, and OpenBLAS's spin while they wait.
int UsableCores();

// The smaller of the machine's memory and the cgroups' limit.
int64_t UsableMemory();

// `memory_bytes` 0 takes half of UsableMemory.
DeviceInfo DescribeCpu(const std::string& name, int threads, int64_t memory_bytes);

}  // namespace gemmd::kernels::cpu
