#include "kernels/cuda/matmul/gradient/gradient_family.h"

#include <utility>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/gradient/gradient_launch.h"
#include "kernels/cuda/matmul/problem_args.h"

namespace gemmd::kernels::cuda {
namespace {

GradientProblem Unplaced(const MatmulProblem& problem) {
  return {.args = UnplacedArgs(problem), .a = problem.a.granularity, .b = problem.b.granularity};
}

class GradientMatmul final : public PreparedMatmul {
 public:
  explicit GradientMatmul(PreparedGradient prepared) : prepared_(std::move(prepared)) {}

  absl::Status Launch(bool overlap, cudaStream_t stream) const override {
    return ToStatus(LaunchGradient(prepared_, overlap, stream), prepared_.family->name);
  }

 private:
  const PreparedGradient prepared_;
};

}  // namespace

GradientFamily::GradientFamily(DeviceTraits device, double memory_bytes_per_s)
    : device_(std::move(device)),
      memory_bytes_per_s_(memory_bytes_per_s),
      infos_{{kGradientName, kGradientName,
              "gradients of weights, dense and k-grouped: e4m3 and e5m2 in any mix, scales of "
              "1x128 on both sides, into f32 or 16 bits, added to c or not"}} {}

std::string GradientFamily::WhyNot(int, const MatmulProblem& problem) const {
  if (std::string why = cuda::WhyNot(device_); !why.empty()) return why;
  return WhyNotGradient(Unplaced(problem));
}

double GradientFamily::Seconds(int, const MatmulProblem& problem) const {
  const double columns = static_cast<double>(problem.k) * static_cast<double>(problem.batch);
  return GradientSeconds(Unplaced(problem), columns, memory_bytes_per_s_, device_.sms);
}

int64_t GradientFamily::ScratchBytes(int, const MatmulProblem& problem) const {
  return CopiesOf(Unplaced(problem)).scratch_bytes;
}

absl::StatusOr<std::unique_ptr<const PreparedMatmul>> GradientFamily::Prepare(
    int, const MatmulArgs& args, std::byte* scratch) const {
  const GradientProblem problem = {
      .args = args.gemm, .a = args.problem.a.granularity, .b = args.problem.b.granularity};
  // The problem told of offsets; that slots start at multiples of 256 is the caller's word.
  if (std::string why = WhyNotGradient(problem); !why.empty()) {
    return absl::InvalidArgumentError(why);
  }
  auto prepared = PrepareGradient(problem, GradientConfig(problem), scratch, device_);
  if (!prepared.ok()) return prepared.status();
  return std::make_unique<GradientMatmul>(*std::move(prepared));
}

}  // namespace gemmd::kernels::cuda
