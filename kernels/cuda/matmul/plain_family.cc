#include "kernels/cuda/matmul/plain_family.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/ops/any_gemm_parts.h"

namespace gemmd::kernels::cuda {
namespace {

// FP32: on 250 shapes on an H200 it is 17 % off where A has few rows, else 20 %.
double FloatSeconds(const MatmulProblem& p) {
  const bool has_scales =
      p.a.granularity != ScaleGranularity::kNone || p.b.granularity != ScaleGranularity::kNone;
  const bool turns = AnyFloatTurns(p.m, p.n, p.has_bias);
  const int64_t m = turns ? p.n : p.m, n = turns ? p.m : p.n;
  const OperandTraits& b = turns ? p.a : p.b;
  const int rows = AnyFloatTileRows(m, has_scales);
  const double tiles = std::ceil(1.0 * m / rows) * std::ceil(1.0 * n / kAnyTile) * p.batch;
  const int parts = 1 << AnyGemmLog2Parts(static_cast<int64_t>(tiles), p.k);
  const double blocks = std::ceil(std::ceil(p.k / 128.0) / parts);  // of 128 k's
  if (rows == kAnyTile) {
    constexpr double kTileSeconds = 2.4e-6, kStageSeconds = 2.1e-6, kStageK = 32, kCtasAtOnce = 132;
    const double stages = std::ceil(std::min<double>(p.k, blocks * 128) / kStageK);
    return 1.7e-6 + (parts > 1 ? 1.3e-6 : 0) +
           (kTileSeconds + stages * kStageSeconds) * std::max(1.0, tiles * parts / kCtasAtOnce);
  }
  const double at_once = rows <= 8 ? 264 : 132;
  const bool units = b.alignment_bytes % 16 == 0;
  const FewWalk walk = FewWalkOf(n, p.k, units && b.layout == Layout::kKContiguous,
                                 units && b.layout == Layout::kRowsContiguous);
  constexpr double kOneByOne = 1.5;  // not fitted
  const double step_seconds = (rows <= 8    ? 0.95e-6
                               : rows <= 16 ? 0.9e-6
                                            : 2.7e-6) *
                              (walk == FewWalk::kAnywhere ? kOneByOne : 1);
  constexpr double kTileSeconds = 2.4e-6, kBytesPerSecond = 1.9e12;
  return 0.7e-6 + (parts > 1 ? 0.9e-6 : 0) +
         std::max((kTileSeconds + blocks * step_seconds) * std::max(1.0, tiles * parts / at_once),
                  p.bytes() / kBytesPerSecond);
}

// Tiles of 64 x 64, of which CTAs of a cluster share a long k where tiles are few (any_gemm.cu).
// Fitted to 64 shapes of BF16 on an H200, of odd extents and all layouts: 12 % off on average.
double AnyGemmSeconds(const MatmulProblem& problem) {
  if (problem.a.dtype == DType::kF32) return FloatSeconds(problem);
  constexpr double kTile = kAnyTile;
  constexpr double kLaunchSeconds = 2.4e-6, kClusterSeconds = 1.9e-6;
  constexpr double kTileSeconds = 1.1e-6, kStageSeconds = 1.3e-6;
  constexpr double kCtasAtOnce = 140;
  constexpr double kBytesPerSecond = 0.8e12;
  const double tiles = std::ceil(problem.m / kTile) * std::ceil(problem.n / kTile) * problem.batch;
  const double parts = 1 << AnyGemmLog2Parts(static_cast<int64_t>(tiles), problem.k);
  const double k = parts > 1 ? std::ceil(std::ceil(problem.k / 128.0) / parts) * 128 : problem.k;
  const int size = problem.a.dtype == DType::kI8 ? 1 : 2;  // FP8 is multiplied as FP16
  const double stages = std::ceil(k * size / 128);
  const double rounds = std::max(1.0, tiles * parts / kCtasAtOnce);
  return kLaunchSeconds + (parts > 1 ? kClusterSeconds : 0) +
         std::max((kTileSeconds + stages * kStageSeconds) * rounds,
                  problem.bytes() / kBytesPerSecond);
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
