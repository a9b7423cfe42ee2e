// The launches of a matmul by a TMA kernel: copies of scales in front of it, an activation that it
// does not know behind it.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/matmul/problem_args.h"
#include "kernels/cuda/matmul/tma_family.h"

namespace gemmd::kernels::cuda {
namespace {

class TmaMatmul final : public PreparedMatmul {
 public:
  TmaMatmul(const GemmVariant& variant, const StreamLaunch& launch,
            std::vector<ScaleLayoutArgs> copies, std::optional<ActivateArgs> activation)
      : variant_(variant),
        launch_(launch),
        copies_(std::move(copies)),
        activation_(std::move(activation)) {
    launch_.programmatic = true;  // as almost every launch is: it need not be copied for that
    if (activation_) activation_->programmatic = true;
  }

  absl::Status Launch(bool overlap, cudaStream_t stream) const override {
    for (ScaleLayoutArgs copy : copies_) {
      copy.programmatic = overlap;
      const cudaError_t code = LaunchScaleLayout(copy, stream);
      if (code != cudaSuccess) return ToStatus(code, "copying scales");
      overlap = true;
    }
    absl::Status status;
    if (overlap) {
      status = cuda::Launch(variant_, launch_, stream);
    } else {
      StreamLaunch alone = launch_;
      alone.programmatic = false;
      status = cuda::Launch(variant_, alone, stream);
    }
    if (!status.ok() || !activation_) return status;
    return ToStatus(LaunchActivate(*activation_, stream), "activation");
  }

 private:
  const GemmVariant variant_;
  StreamLaunch launch_;
  const std::vector<ScaleLayoutArgs> copies_;
  std::optional<ActivateArgs> activation_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const PreparedMatmul>> PrepareTma(const GemmVariant& variant,
                                                                 const MatmulArgs& args,
                                                                 std::byte* scratch,
                                                                 const DeviceTraits& device) {
  const AnyGemmArgs& any = args.gemm;
  // As the problem has it, which the scratch was made for.
  const ScaleCopies copies = CopiesOf(UnplacedArgs(args.problem));
  std::byte* const copied = scratch + PartialBytes(variant, device);
  const GemmArgs gemm = GemmArgsOf(any, copies, copied);
  // The problem told of offsets; that slots start at multiples of 256 is the caller's word.
  if (std::string why = cuda::WhyNot(variant, gemm); !why.empty()) {
    return absl::InvalidArgumentError(why);
  }
  const absl::StatusOr<StreamLaunch> launch = PrepareLaunch(variant, gemm, scratch, device);
  if (!launch.ok()) return launch.status();
  std::vector<ScaleLayoutArgs> layouts;
  for (const auto& copy : {CopyOfA(any, copies, copied), CopyOfB(any, copies, copied)}) {
    if (copy) layouts.push_back(*copy);
  }
  return std::make_unique<TmaMatmul>(variant, *launch, std::move(layouts), ActivationOf(any));
}

}  // namespace gemmd::kernels::cuda
