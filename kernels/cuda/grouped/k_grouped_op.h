// From a KGroupedMatmulOp to its launches: the directory, scales brought into their layout, and the
// gradient kernel or the one that takes anything.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/args/op_args.h"
#include "kernels/cuda/grouped/k_grouped.h"
#include "kernels/cuda/matmul/gradient/gradient_launch.h"
#include "kernels/cuda/sm90/launch/grouped.h"
#include "kernels/kernel.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

// Empty when the gradient kernels serve the op: "a is bf16; ...".
std::string WhyNotGradient(const KGroupedMatmulOp& op);

// What is settled before the op has memory.
struct KGroupedLayout {
  bool fast = false;  // by the gradient kernels, which serve it
  int config = 0;
  int64_t copies_offset = 0;  // behind starts and sizes
  int64_t scratch_bytes = 0;
};
KGroupedLayout LayoutOf(const KGroupedMatmulOp& op, bool fast);

double KGroupedSeconds(const KGroupedMatmulOp& op, bool fast, double memory_bytes_per_s);

// Ready to be queued any number of times. Whoever queues it gives the place of its fault.
struct KGroupedLaunches {
  DirectoryArgs directory;
  std::optional<PreparedGradient> gradient;
  std::optional<AnyKGroupedArgs> any;
};

// INVALID_ARGUMENT when the driver refuses a tensor map. The device is current. `scratch` at a
// multiple of 256.
absl::StatusOr<KGroupedLaunches> PrepareKGrouped(const KGroupedMatmulOp& op,
                                                 const KGroupedLayout& layout, SlotAddresses slots,
                                                 std::byte* scratch, const DeviceTraits& device);

// `overlap`: the first kernel may start under the end of the one in front.
absl::Status QueueKGrouped(const KGroupedLaunches& launches, DataFault* fault, bool overlap,
                           cudaStream_t stream);

// The kernels, which outlive the answer: best first, the first feasible one chosen.
std::vector<Candidate> RankKGrouped(const KGroupedMatmulOp& op, const KernelInfo& gradient,
                                    const KernelInfo& any, double memory_bytes_per_s);

}  // namespace gemmd::kernels::cuda
