// The TMA + WGMMA matmul kernels of all operand kinds, tiled and skinny, as one family: its members
// are AllVariants(), in their order.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/matmul/family.h"
#include "kernels/cuda/sm90/gemm.h"

namespace gemmd::kernels::cuda {

// MatmulFamily::Prepare of one of them. PrepareTma, which whoever chooses without launching does
// not link.
using TmaPreparer = absl::StatusOr<std::unique_ptr<const PreparedMatmul>>(
    const GemmVariant& variant, const MatmulArgs& args, std::byte* scratch,
    const DeviceTraits& device);
TmaPreparer PrepareTma;

class TmaFamily final : public MatmulFamily {
 public:
  // `prepare` may be null where nothing is prepared.
  TmaFamily(DeviceTraits device, double memory_bytes_per_s, TmaPreparer* prepare);

  absl::Span<const KernelInfo> members() const override { return infos_; }
  Standing standing(int) const override { return Standing::kContends; }
  std::string WhyNot(int member, const MatmulProblem& problem) const override;
  // By the cost model, with copies of operands in front of it (operand_copies.h). What copies its
  // scales costs every member the same.
  double Seconds(int member, const MatmulProblem& problem) const override;
  int64_t ScratchBytes(int member, const MatmulProblem& problem) const override;
  absl::StatusOr<std::unique_ptr<const PreparedMatmul>> Prepare(int member, const MatmulArgs& args,
                                                                std::byte* scratch) const override;

 private:
  const DeviceTraits device_;
  const double memory_bytes_per_s_;
  TmaPreparer* const prepare_;
  const std::string why_not_device_;
  std::vector<KernelInfo> infos_;
};

}  // namespace gemmd::kernels::cuda
