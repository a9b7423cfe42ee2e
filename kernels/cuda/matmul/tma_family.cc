#include "kernels/cuda/matmul/tma_family.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/matmul/operand_copies.h"
#include "kernels/cuda/matmul/operand_kind.h"
#include "kernels/cuda/matmul/problem_args.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/tuning/model.h"

namespace gemmd::kernels::cuda {
namespace {

std::string Describe(const GemmVariant& variant) {
  const GemmConfig& c = variant.shape();
  std::string text = absl::StrCat(KindOf(c.mma).description, ", rows of 16 bytes; tile ",
                                  c.block_m(), "x", c.block_n(), ", ", c.stages, " stages");
  if (c.multicast() > 1) absl::StrAppend(&text, ", ", c.multicast(), " CTAs share a side");
  if (variant.split > 1) absl::StrAppend(&text, ", k divided by ", variant.split);
  if (ReadsAlongRows(variant)) absl::StrAppend(&text, ", B along k or along its rows");
  if (ReadsBothAlongRows(variant)) absl::StrAppend(&text, ", both operands along theirs");
  if (variant.streams_k()) absl::StrAppend(&text, ", CTAs take equal parts of all tiles' k");
  return text;
}

}  // namespace

TmaFamily::TmaFamily(DeviceTraits device, double memory_bytes_per_s, TmaPreparer* prepare)
    : device_(std::move(device)),
      memory_bytes_per_s_(memory_bytes_per_s),
      prepare_(prepare),
      why_not_device_(cuda::WhyNot(device_)) {
  for (const GemmVariant& variant : AllVariants()) {
    infos_.push_back({Name(variant), variant.entry().name, Describe(variant)});
  }
}

std::string TmaFamily::WhyNot(int member, const MatmulProblem& problem) const {
  if (!why_not_device_.empty()) return why_not_device_;
  std::string why = cuda::WhyNot(AllVariants()[member], Readable(problem));
  if (why.empty() && OperandCopiesOf(problem).scratch_bytes > kMaxScratchBytes) {
    return absl::StrCat("a copy of its operands takes more than ", kMaxScratchBytes,
                        " bytes; lay them out along k, in rows of 16 bytes");
  }
  return why;
}

double TmaFamily::Seconds(int member, const MatmulProblem& problem) const {
  return ModelSeconds(AllVariants()[member], Readable(problem), device_) +
         MisalignedSeconds(problem, memory_bytes_per_s_);
}

int64_t TmaFamily::ScratchBytes(int member, const MatmulProblem& problem) const {
  return PartialBytes(AllVariants()[member], device_) +
         RoundUp(CopiesOf(UnplacedArgs(Readable(problem))).scratch_bytes, kScratchAlignment) +
         OperandCopiesOf(problem).scratch_bytes;
}

absl::StatusOr<std::unique_ptr<const PreparedMatmul>> TmaFamily::Prepare(int member,
                                                                         const MatmulArgs& args,
                                                                         std::byte* scratch) const {
  return prepare_(AllVariants()[member], args, scratch, device_);
}

}  // namespace gemmd::kernels::cuda
