// GemmPool: every kernel that multiplies on one device, and which of them serves a problem. The TMA
// families first, by the selector; what they cannot take goes to the other kernels, of which
// sm90_any_gemm takes everything. Remembers its answers.
//
//   GemmPool pool({.device = traits, .table = table, .others = {AnyGemmKernel(LaunchAnyGemm)}});
//   absl::StatusOr<PoolPick> pick = pool.Choose(problem);
//   if (pick->variant.has_value()) { ... PrepareLaunch(*pick->variant, args, traits) ... }

#ifndef GEMMD_KERNELS_CUDA_MATMUL_POOL_H_
#define GEMMD_KERNELS_CUDA_MATMUL_POOL_H_

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/cuda/matmul/selector.h"
#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/kernel.h"

namespace gemmd::kernels::cuda {

// A kernel beside the TMA families: the fallback, and what a test brings.
struct OtherKernel {
  KernelInfo info;
  // Empty when it serves the problem; else one cause, with value, limit and remedy. Thread-safe.
  std::function<std::string(const MatmulProblem&)> why_not;
  std::function<double(const MatmulProblem&)> seconds;  // modelled
  // Queues it; the current device is the pool's. Not null.
  cudaError_t (*launch)(const AnyGemmArgs& args, cudaStream_t stream) = nullptr;
  bool by_name = false;  // serves whoever names it, and is nobody's choice
};

// sm90_any_gemm (any_gemm.h). `launch` is LaunchAnyGemm, which whoever chooses without launching
// does not link.
OtherKernel AnyGemmKernel(decltype(OtherKernel::launch) launch);

struct PoolPick {
  std::optional<GemmVariant> variant;  // a member of the TMA families, or
  int other = -1;                      // an index into GemmPoolOptions::others
  KernelChoice choice;                 // `kernel` lives as long as the pool
};

struct GemmPoolOptions {
  DeviceTraits device;
  TuningTable table;
  std::vector<OtherKernel> others;
  // Names or families that are not to be used, and why: "the config disables it".
  absl::flat_hash_map<std::string, std::string> disabled;
  // Names of those that failed their self-test, and how.
  absl::flat_hash_map<std::string, std::string> quarantined;
};

// Thread-safe.
class GemmPool {
 public:
  // Answers remembered; one more forgets them all. A serving process sees far fewer problems.
  static constexpr int kMaxRemembered = 4096;

  explicit GemmPool(GemmPoolOptions options);

  // All members, those that are off too.
  absl::Span<const KernelInfo> kernels() const { return infos_; }
  const OtherKernel& other(int index) const { return options_.others[index]; }  // of a PoolPick

  // The kernel for `problem`, or the one called `forced` unless that is empty. NOT_FOUND when none
  // is called so; UNIMPLEMENTED, with the reasons, when it, or every kernel, cannot serve. kShipped
  // chooses as if nothing had been laid over the table.
  enum class By { kTuned, kShipped };
  absl::StatusOr<PoolPick> Choose(const MatmulProblem& problem, std::string_view forced = "",
                                  By by = By::kTuned) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Lays `tuned` over the table that the pool was made with, in the place of what was laid there
  // before. Choices made from then on follow it.
  void SetTuned(const TuningTable& tuned) ABSL_LOCKS_EXCLUDED(mutex_);

  // Every member: the chosen one, the others that could serve, best first, those that cannot.
  // `why_not` tells for each but the chosen one what it lacks or by how much it lost.
  std::vector<Candidate> Explain(const MatmulProblem& problem) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // One member; infos_[i] describes members_[i].
  struct Member {
    std::optional<GemmVariant> variant;
    int other = -1;
    std::string off;  // why; empty when enabled
  };

  void AddMember(KernelInfo info, Member member);
  std::string WhyNotMember(const Member& member, const MatmulProblem& problem) const;
  double Seconds(const Member& member, const MatmulProblem& problem) const;
  PoolPick PickOf(int index, ChoiceReason reason, double seconds) const;
  absl::StatusOr<PoolPick> ChooseForced(const MatmulProblem& problem,
                                        std::string_view forced) const;
  absl::StatusOr<PoolPick> ChooseBest(const GemmSelector& selector,
                                      const MatmulProblem& problem) const;
  // Of the kernels beside the families, which serve nothing for `why_not`.
  absl::StatusOr<PoolPick> ChooseOther(const MatmulProblem& problem, std::string why_not) const;
  std::shared_ptr<const GemmSelector> selector(By by) const ABSL_LOCKS_EXCLUDED(mutex_);

  const GemmPoolOptions options_;
  std::vector<KernelInfo> infos_;  // never resized after construction: choices point at the names
  std::vector<Member> members_;
  absl::flat_hash_map<std::string_view, int> by_name_;  // into members_
  std::vector<GemmVariant> enabled_;
  mutable absl::Mutex mutex_;
  // By By. Shared with choices under way.
  std::array<std::shared_ptr<const GemmSelector>, 2> selectors_ ABSL_GUARDED_BY(mutex_);
  mutable std::array<absl::flat_hash_map<MatmulProblem, PoolPick>, 2> remembered_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_MATMUL_POOL_H_
