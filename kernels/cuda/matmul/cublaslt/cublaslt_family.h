// cuBLASLt's kernels as a family: whoever has the library measures or names them like ours.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/matmul/cublaslt/cublaslt.h"
#include "kernels/cuda/matmul/family.h"

namespace gemmd::kernels::cuda {

// The members are CublasLtKind's values. All share the library's workspace: launches belong on one
// stream, or on streams that are ordered.
class CublasLtFamily final : public MatmulFamily {
 public:
  // `library` outlives the family and its launches; null where nothing is prepared.
  explicit CublasLtFamily(const CublasLt* library);

  absl::Span<const KernelInfo> members() const override { return infos_; }
  Standing standing(int) const override { return Standing::kByName; }
  // What a plan is never made for. The library's heuristic may refuse more: Prepare tells.
  std::string WhyNot(int member, const MatmulProblem& problem) const override;
  double Seconds(int member, const MatmulProblem& problem) const override;
  int64_t ScratchBytes(int, const MatmulProblem&) const override { return 0; }
  absl::StatusOr<std::unique_ptr<const PreparedMatmul>> Prepare(int member, const MatmulArgs& args,
                                                                std::byte* scratch) const override;

 private:
  const CublasLt* const library_;
  std::vector<KernelInfo> infos_;
};

}  // namespace gemmd::kernels::cuda
