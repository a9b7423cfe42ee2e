// A matmul with a gate: by the kernels that apply it themselves, or as a product in scratch memory
// and a gate behind it.

#ifndef GEMMD_KERNELS_CUDA_GROUPED_GATED_MATMUL_H_
#define GEMMD_KERNELS_CUDA_GROUPED_GATED_MATMUL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/matmul/fused_gate.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/ops/op_args.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

// Empty when the fused kernels serve the op, which has a gate: "d is bf16; ...".
std::string WhyNotFused(const MatmulOp& op);

// What the fused kernels take, by their physics alone.
double FusedSeconds(const MatmulOp& op, const DeviceTraits& device, double memory_bytes_per_s);

// What is settled before the op has memory.
struct GatedLayout {
  bool fused = false;
  // Apart: the product, whose slot is the one behind the op's own, and where it lies in scratch.
  std::optional<MatmulOp> product;
  int64_t product_offset = 0;
  ScaleCopies copies;  // fused: of a's scales, at 0
  int64_t scratch_bytes = 0;
};
GatedLayout FusedLayout(const MatmulOp& op);
// `product_scratch`: what the product's own kernel takes of the scratch, in front of the product.
GatedLayout ApartLayout(const MatmulOp& op, int64_t product_scratch);
// The product in BF16, or in FP32 for an FP32 result.
MatmulOp ProductOf(const MatmulOp& op);

// Ready to be queued any number of times.
struct FusedMatmul {
  std::optional<ScaleLayoutArgs> copy;
  FusedGate gate;
};
// INVALID_ARGUMENT when the driver refuses a tensor map. The device is current.
absl::StatusOr<FusedMatmul> PrepareFused(const MatmulOp& op, const GatedLayout& layout,
                                         SlotAddresses slots, std::byte* scratch,
                                         const DeviceTraits& device);
// `overlap`: the first kernel may start under the end of the one in front.
absl::Status QueueFused(const FusedMatmul& fused, bool overlap, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_GROUPED_GATED_MATMUL_H_
