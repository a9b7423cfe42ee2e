// Grouped matmuls in BF16, FP16, INT8 and E4M3 without block scales by the TMA kernels: which they
// serve, and their launch.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/args/op_args.h"
#include "kernels/cuda/sm90/launch/grouped_direct_launch.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

// Whether operands like `a` take these kernels, if any of TMA: BF16, FP16, and INT8 and E4M3 unless
// their scales are of blocks.
bool IsDirect(const Operand& a);
// The TMA kernels for operands like `a`; of types that have none, FP8's, which tell so.
std::string_view TmaGroupedName(const Operand& a);

// Empty when they serve the op: "a is f32; ...".
std::string WhyNotDirect(const GroupedMatmulOp& op);

// Of the table's configs.
inline constexpr int kDirectAlone = 0, kDirectPairs = 1;
int DirectConfigOf(const GroupedMatmulOp& op);

// Of a peak of 989 TFLOP/s, and of 1979 in a byte, as measured.
inline constexpr double kDirectFlops = 7.2e14, kDirectInt8Ops = 1.4e15, kDirectFp8Flops = 1.35e15;

struct DirectGrouped {
  DirectGroupedLaunch launch;
  const DirectGroupedEntry* entry = nullptr;
  int config = 0;
  int ctas = 0;
};

// INVALID_ARGUMENT when the driver refuses a tensor map. `args` as those of any kernel, `b` the
// first group's; the op's bias, where it has one, at `bias`.
absl::StatusOr<DirectGrouped> PrepareDirect(const GroupedMatmulOp& op, int config,
                                            const AnyGemmArgs& args, const void* bias,
                                            const GroupSource& source, int sms);
cudaError_t LaunchDirect(const DirectGrouped& direct, DataFault* fault, bool programmatic,
                         cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
