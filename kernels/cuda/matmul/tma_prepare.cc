// The launches of a matmul by a TMA kernel: copies of operands and of scales in front of it.

#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/matmul/operand_copies.h"
#include "kernels/cuda/matmul/problem_args.h"
#include "kernels/cuda/matmul/tma_family.h"
#include "kernels/cuda/rounding.h"

namespace gemmd::kernels::cuda {
namespace {

class TmaMatmul final : public PreparedMatmul {
 public:
  TmaMatmul(const GemmVariant& variant, const StreamLaunch& launch,
            std::vector<OperandCopyArgs> operands, std::vector<ScaleLayoutArgs> scales)
      : variant_(variant),
        launch_(launch),
        operands_(std::move(operands)),
        scales_(std::move(scales)) {
    launch_.programmatic = true;  // as almost every launch is: it need not be copied for that
  }

  absl::Status Launch(bool overlap, cudaStream_t stream) const override {
    if (!operands_.empty()) {
      const auto launch =
          operands_[0].element_bytes == 4 ? LaunchOperandParts : LaunchOperandCopies;
      const cudaError_t code =
          launch(operands_.data(), static_cast<int>(operands_.size()), overlap, stream);
      if (code != cudaSuccess) return ToStatus(code, "copying operands");
      overlap = true;
    }
    for (ScaleLayoutArgs copy : scales_) {
      copy.programmatic = overlap;
      const cudaError_t code = LaunchScaleLayout(copy, stream);
      if (code != cudaSuccess) return ToStatus(code, "copying scales");
      overlap = true;
    }
    if (overlap) return cuda::Launch(variant_, launch_, stream);
    StreamLaunch alone = launch_;
    alone.programmatic = false;
    return cuda::Launch(variant_, alone, stream);
  }

 private:
  const GemmVariant variant_;
  StreamLaunch launch_;
  const std::vector<OperandCopyArgs> operands_;
  const std::vector<ScaleLayoutArgs> scales_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const PreparedMatmul>> PrepareTma(const GemmVariant& variant,
                                                                 const MatmulArgs& args,
                                                                 std::byte* scratch,
                                                                 const DeviceTraits& device) {
  AnyGemmArgs any = args.gemm;
  // As the problem has it, which the scratch was made for.
  const MatmulProblem readable = Readable(args.problem);
  const ScaleCopies copies = CopiesOf(UnplacedArgs(readable));
  std::byte* const copied = scratch + PartialBytes(variant, device);
  std::vector<OperandCopyArgs> operands =
      CopyOperands(OperandCopiesOf(args.problem), any,
                   copied + RoundUp(copies.scratch_bytes, kScratchAlignment));
  GemmArgs gemm = GemmArgsOf(any, copies, copied);
  if (ReadsAlongRows(readable)) {
    gemm.b_along_rows = true;
    gemm.ldb = any.b.k_stride;
  }
  if (ReadsBothAlongRows(readable)) {
    gemm.a_along_rows = true;
    gemm.lda = any.a.k_stride;
  }
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
  return std::make_unique<TmaMatmul>(variant, *launch, std::move(operands), std::move(layouts));
}

}  // namespace gemmd::kernels::cuda
