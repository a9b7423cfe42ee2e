// From addresses to a launch of the gradient kernels: what they demand, tensor maps, a grid.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/scale_layout.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/cuda/sm90/gradient.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

inline constexpr int kHopperSms = 132;  // of an H100 or H200

// The gradient kernels for operands of this type, and FP8's for a type that has none.
std::string_view GradientName(DType a);

// The kernels' problem: `args` of one matmul or of a batch of them. `grouped`: its batch is d's and
// c's alone, and each item has columns of its own of the one a and the one b.
struct GradientProblem {
  AnyGemmArgs args;
  ScaleGranularity a = ScaleGranularity::kNone;
  ScaleGranularity b = ScaleGranularity::kNone;
  bool grouped = false;
};

// Empty when they serve it: "a is f32; ...". Of addresses the alignment counts. BF16 and FP16
// without groups are the TMA families'.
std::string WhyNotGradient(const GradientProblem& problem);

// Scales that do not lie as the copy engine takes them are copied first, to scratch memory.
struct GradientCopies {
  bool a = false;
  bool b = false;
  int64_t b_offset = 0;
  int64_t scratch_bytes = 0;
};
GradientCopies CopiesOf(const GradientProblem& problem);

// Which config is best, by what was measured.
int GradientConfig(const GradientProblem& problem);

struct PreparedGradient {
  const GradientFamilyEntry* family = nullptr;
  int config = 0;
  GradientTypes types;
  GradientLaunch launch;
  std::vector<ScaleLayoutArgs> copies;  // in front of it
};
// `scratch`: CopiesOf's, at a multiple of 256. The caller sets starts and sizes of grouped ones.
// INVALID_ARGUMENT when the driver refuses a tensor map. The device is current.
absl::StatusOr<PreparedGradient> PrepareGradient(const GradientProblem& problem, int config,
                                                 std::byte* scratch, const DeviceTraits& device);
cudaError_t LaunchGradient(const PreparedGradient& prepared, bool overlap, cudaStream_t stream);

// Modelled, of `columns` of k in all.
double GradientSeconds(const GradientProblem& problem, double columns, double memory_bytes_per_s,
                       int sms = kHopperSms);

}  // namespace gemmd::kernels::cuda
