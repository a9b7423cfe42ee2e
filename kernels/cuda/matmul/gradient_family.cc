#include "kernels/cuda/matmul/gradient_family.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/gradient_launch.h"
#include "kernels/cuda/matmul/problem_args.h"
#include "kernels/text.h"

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

struct Member {
  const char* name;
  const char* multiplies;
  const char* description;
};
constexpr Member kMembers[] = {
    {kGradientName, "e4m3, e5m2",
     "gradients of weights, dense and k-grouped: e4m3 and e5m2 in any mix, scales of 1x128 on both "
     "sides, into f32 or 16 bits, added to c or not"},
    {kBf16GradientName, "bf16",
     "gradients of weights: bf16, both operands along their rows, of groups also both along k, "
     "into f32 or 16 bits, added to c or not"},
    {kF16GradientName, "f16",
     "gradients of weights: f16, both operands along their rows, of groups also both along k, "
     "into f32 or 16 bits, added to c or not"},
};

std::vector<KernelInfo> Infos() {
  std::vector<KernelInfo> infos;
  for (const Member& member : kMembers) {
    infos.push_back({member.name, member.name, member.description});
  }
  return infos;
}

}  // namespace

GradientFamily::GradientFamily(DeviceTraits device, double memory_bytes_per_s)
    : device_(std::move(device)), memory_bytes_per_s_(memory_bytes_per_s), infos_(Infos()) {}

std::string GradientFamily::WhyNot(int member, const MatmulProblem& problem) const {
  if (std::string why = cuda::WhyNot(device_); !why.empty()) return why;
  const DType a = problem.a.dtype;
  const bool has_kernels = IsFp8(a) || a == DType::kBF16 || a == DType::kF16;
  if (!has_kernels || GradientName(a) != kMembers[member].name) {
    return absl::StrCat("a is ", Text(Name(a)), "; this kernel multiplies ",
                        kMembers[member].multiplies);
  }
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
  auto prepared = PrepareGradient(problem, GradientConfig(problem, device_.sms), scratch, device_);
  if (!prepared.ok()) return prepared.status();
  return std::make_unique<GradientMatmul>(*std::move(prepared));
}

}  // namespace gemmd::kernels::cuda
