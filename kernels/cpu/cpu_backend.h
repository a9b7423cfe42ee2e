// The CPU backend: the same API on a machine without a GPU, and fast enough to be useful there.
// OpenBLAS multiplies FP32 panels; quantised operands are dequantised panel by panel into cache,
// never as a whole matrix.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace gemmd::kernels {

struct CpuBackendOptions {
  std::string name = "cpu:0";
  int threads = 0;           // OpenBLAS and panel threads; 0 takes the cores this process may use
  int64_t memory_bytes = 0;  // 0 takes half of the machine's memory
  std::vector<std::string>
      disabled_kernels;  // names or families; INVALID_ARGUMENT for one that does not exist
};

// INVALID_ARGUMENT for a name that is no kernel's and no family's, with those that there are.
absl::Status CheckCpuKernels(const std::string& device, const std::vector<std::string>& names);

// What this process may use of the machine's memory.
int64_t CpuMemoryBytes();

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options);

}  // namespace gemmd::kernels
