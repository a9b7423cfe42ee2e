// Kernels that take any matmul's arguments as they are: the fallback, the ladder's, and what tests
// bring. A row of functions each; PlainFamily makes members of them.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/matmul/family.h"

namespace gemmd::kernels::cuda {

struct PlainKernel {
  KernelInfo info;
  std::function<std::string(const MatmulProblem&)> why_not;  // MatmulFamily::WhyNot
  std::function<double(const MatmulProblem&)> seconds;       // MatmulFamily::Seconds
  // Queues it; the current device is the pool's. Not null.
  cudaError_t (*launch)(const AnyGemmArgs& args, cudaStream_t stream) = nullptr;
  Standing standing = Standing::kContends;
};

// sm90_any_gemm (any_gemm.h). `launch` is LaunchAnyGemm, which whoever chooses without launching
// does not link.
PlainKernel AnyGemmKernel(decltype(PlainKernel::launch) launch);

class PlainFamily final : public MatmulFamily {
 public:
  explicit PlainFamily(std::vector<PlainKernel> kernels);

  absl::Span<const KernelInfo> members() const override { return infos_; }
  Standing standing(int member) const override { return kernels_[member].standing; }
  std::string WhyNot(int member, const MatmulProblem& problem) const override {
    return kernels_[member].why_not(problem);
  }
  double Seconds(int member, const MatmulProblem& problem) const override {
    return kernels_[member].seconds(problem);
  }
  int64_t ScratchBytes(int, const MatmulProblem&) const override { return 0; }
  absl::StatusOr<std::unique_ptr<const PreparedMatmul>> Prepare(int member, const MatmulArgs& args,
                                                                std::byte* scratch) const override;

 private:
  const std::vector<PlainKernel> kernels_;
  std::vector<KernelInfo> infos_;
};

}  // namespace gemmd::kernels::cuda
