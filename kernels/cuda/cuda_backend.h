// The CUDA backend: one Hopper GPU behind kernels/backend.h. FP8 with block scales is multiplied by
// the TMA families, by the tuning table's choice or the cost model's; everything else by kernels
// that take anything.
//
//   auto backend = CreateCudaBackend({.name = "cuda:1", .ordinal = 1});

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace gemmd::kernels {

struct CudaBackendOptions {
  std::string name = "cuda:0";
  int ordinal = 0;           // as the CUDA runtime counts, after CUDA_VISIBLE_DEVICES
  int64_t memory_bytes = 0;  // of buffers in all; 0 takes what is free, less a reserve
  std::vector<std::string>
      disabled_kernels;  // names or families; INVALID_ARGUMENT for one that does not exist
  // A file of `gemm_bench --tune`, or a folder of them; empty leaves the choice to the model.
  std::string tuning_table;
  // Tries every enabled kernel first (self_test.h), which takes a fraction of a second. One that
  // fails is quarantined: KernelInfo tells, and it is never chosen.
  bool self_test = true;
  // The backend's threads run on the NUMA node that the GPU hangs on, and pinned memory lies there.
  // DeviceInfo::numa_node tells which.
  bool numa_binding = true;
  // Told before CreateCudaBackend returns when there is a node and threads cannot be bound to it:
  // the backend works unbound.
  std::function<void(const absl::Status&)> unbound;
  // Told likewise when part of the tuning table was measured with other machine code, and is left
  // out: TuningTable::stale().
  std::function<void(const std::string&)> stale_tuning;
};

// Whether this machine has the GPU: FAILED_PRECONDITION, with the remedy, as CreateCudaBackend.
// Makes no context.
absl::Status CheckGpu(const std::string& name, int ordinal);

// INVALID_ARGUMENT for a name that is no kernel's and no family's. Needs no GPU.
absl::Status CheckGpuKernels(const std::string& device, const std::vector<std::string>& names);

// FAILED_PRECONDITION, with the remedy, when the machine has no driver, no such GPU or one of
// another architecture, or when the tuning table was measured on something else; UNAVAILABLE when
// the self-test of a kernel takes the device with it. Needs the device's context, which takes a few
// hundred MiB of its memory for as long as the process lives.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options);

}  // namespace gemmd::kernels
