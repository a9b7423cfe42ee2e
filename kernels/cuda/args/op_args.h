// From ops to kernel arguments, for validated ops and the addresses their slots have on the device;
// and from arguments to the launchers of ops/ and experts/.

#pragma once

#include <cstddef>

#include "absl/types/span.h"
#include "kernels/cuda/experts/choose.h"
#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/gated.h"
#include "kernels/cuda/ops/normalize.h"
#include "kernels/cuda/ops/quantize.h"
#include "kernels/op.h"

namespace gemmd::kernels::cuda {

using SlotAddresses = absl::Span<std::byte* const>;  // by TensorRef::slot

AnyGemmArgs ArgsOf(const MatmulOp& op, SlotAddresses slots);
QuantizeArgs ArgsOf(const QuantizeOp& op, SlotAddresses slots);
GatedArgs ArgsOf(const GatedOp& op, SlotAddresses slots);
ConvertArgs ArgsOf(const ConvertOp& op, SlotAddresses slots);
ConvertArgs ArgsOf(const CopyOp& op, SlotAddresses slots);
FillArgs ArgsOf(const FillOp& op, SlotAddresses slots);
ChooseArgs ArgsOf(const ChooseOp& op, SlotAddresses slots);
RouteArgs ArgsOf(const RouteOp& op, SlotAddresses slots);
CombineArgs ArgsOf(const CombineOp& op, SlotAddresses slots);
NormalizeArgs ArgsOf(const NormalizeOp& op, SlotAddresses slots);
// a's batch are its items, b's the groups. Without the bias, which a group has for itself.
AnyGemmArgs ArgsOf(const GroupedMatmulOp& op, SlotAddresses slots);

inline cudaError_t Launch(const AnyGemmArgs& args, cudaStream_t stream) {
  return LaunchAnyGemm(args, stream);
}
inline cudaError_t Launch(const QuantizeArgs& args, cudaStream_t stream) {
  return LaunchQuantize(args, stream);
}
inline cudaError_t Launch(const GatedArgs& args, cudaStream_t stream) {
  return LaunchGated(args, stream);
}
inline cudaError_t Launch(const ConvertArgs& args, cudaStream_t stream) {
  return LaunchConvert(args, stream);
}
inline cudaError_t Launch(const FillArgs& args, cudaStream_t stream) {
  return LaunchFill(args, stream);
}
inline cudaError_t Launch(const ChooseArgs& args, cudaStream_t stream) {
  return LaunchChoose(args, stream);
}
inline cudaError_t Launch(const RouteArgs& args, cudaStream_t stream) {
  return LaunchRoute(args, stream);
}
inline cudaError_t Launch(const CombineArgs& args, cudaStream_t stream) {
  return LaunchCombine(args, stream);
}
inline cudaError_t Launch(const NormalizeArgs& args, cudaStream_t stream) {
  return LaunchNormalize(args, stream);
}

// A strided tensor to or from dense row-major bytes on the device: WriteOp and ReadOp once their
// bytes are there.
ConvertArgs FromDense(const std::byte* bytes, const TensorRef& dst, SlotAddresses slots);
ConvertArgs ToDense(const TensorRef& src, std::byte* bytes, SlotAddresses slots);

}  // namespace gemmd::kernels::cuda
