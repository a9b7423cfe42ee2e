#include "kernels/cuda/matmul/plain_family.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/ops/any_gemm_parts.h"

namespace gemmd::kernels::cuda {
namespace {

// Tiles of 64 x 64, of which CTAs of a cluster share a long k where tiles are few (any_gemm.cu).
// Fitted to 64 shapes of BF16 on an H200, of odd extents and all layouts: 12 % off on average.
double AnyGemmSeconds(const MatmulProblem& problem) {
  constexpr double kTile = kAnyTile;
  constexpr double kLaunchSeconds = 2.4e-6, kClusterSeconds = 1.9e-6;
  constexpr double kTileSeconds = 1.1e-6, kStageSeconds = 1.3e-6;
  constexpr double kCtasAtOnce = 140;
  constexpr double kBytesPerSecond = 0.8e12;
  constexpr double kFmaFlops = 20e12;
  const double tiles = std::ceil(problem.m / kTile) * std::ceil(problem.n / kTile) * problem.batch;
  const double parts = 1 << AnyGemmLog2Parts(static_cast<int64_t>(tiles), problem.k);
  const double k = parts > 1 ? std::ceil(std::ceil(problem.k / 128.0) / parts) * 128 : problem.k;
  const bool f32 = problem.a.dtype == DType::kF32;
  const int size = f32 ? 4 : problem.a.dtype == DType::kI8 ? 1 : 2;  // FP8 is multiplied as FP16
  const double stages = std::ceil(k * size / 128);
  const double rounds = std::max(1.0, tiles * parts / kCtasAtOnce);
  const double flops = f32 ? 2 * tiles * kTile * kTile * problem.k : 0;
  return kLaunchSeconds + (parts > 1 ? kClusterSeconds : 0) +
         std::max({(kTileSeconds + stages * kStageSeconds) * rounds,
                   problem.bytes() / kBytesPerSecond, flops / kFmaFlops});
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
