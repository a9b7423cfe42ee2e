#include "kernels/cuda/matmul/plain_family.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::cuda {
namespace {

// One tile of 64 x 64 a CTA, two stages in flight, operands through registers.
double AnyGemmSeconds(const MatmulProblem& problem) {
  constexpr double kTile = 64;
  constexpr double kLaunchSeconds = 4e-6;
  constexpr double kMmaFlops = 120e12;  // mma.sync fed without TMA
  constexpr double kFmaFlops = 20e12;
  constexpr double kBytesPerSecond = 1.5e12;
  constexpr double kStageSeconds = 0.7e-6;  // a stage of 128 bytes of k waits for memory
  constexpr double kCtas = 132 * 4.0;       // at work at once
  const double tiles = std::ceil(problem.m / kTile) * std::ceil(problem.n / kTile) * problem.batch;
  const double flops = 2 * tiles * kTile * kTile * problem.k;
  const double rate = problem.a.dtype == DType::kF32 ? kFmaFlops : kMmaFlops;
  const double stages = std::ceil(problem.k * SizeBytes(problem.a.dtype) / 128.0);
  const double waves = std::max(1.0, std::ceil(tiles / kCtas));
  return kLaunchSeconds + std::max({flops / rate, problem.bytes() / kBytesPerSecond,
                                    waves * stages * kStageSeconds});
}

class PlainMatmul final : public PreparedMatmul {
 public:
  PlainMatmul(const PlainKernel& kernel, const AnyGemmArgs& args) : kernel_(kernel), args_(args) {}

  absl::Status Launch(bool overlap, cudaStream_t stream) const override {
    AnyGemmArgs args = args_;
    args.programmatic = overlap;
    return ToStatus(kernel_.launch(args, stream), kernel_.info.name);
  }

 private:
  const PlainKernel& kernel_;  // the family's, which outlives its launches
  const AnyGemmArgs args_;
};

}  // namespace

PlainKernel AnyGemmKernel(decltype(PlainKernel::launch) launch) {
  return {.info = {kAnyGemmName, kAnyGemmName, "any type, shape, stride and scales; slow"},
          .why_not = [](const MatmulProblem&) { return std::string(); },
          .seconds = AnyGemmSeconds,
          .launch = launch,
          .standing = Standing::kLastResort};
}

PlainFamily::PlainFamily(std::vector<PlainKernel> kernels) : kernels_(std::move(kernels)) {
  for (const PlainKernel& kernel : kernels_) infos_.push_back(kernel.info);
}

absl::StatusOr<std::unique_ptr<const PreparedMatmul>> PlainFamily::Prepare(int member,
                                                                           const MatmulArgs& args,
                                                                           std::byte*) const {
  return std::make_unique<PlainMatmul>(kernels_[member], args.gemm);
}

}  // namespace gemmd::kernels::cuda
