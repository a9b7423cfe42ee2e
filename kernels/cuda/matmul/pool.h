// GemmPool: every kernel that multiplies on one device, and which of them serves a problem. Its
// members are those of its families, known by their index; of the TMA family a tuning table tells
// which is quickest, of the others the model. Remembers its answers.
//
//   GemmPool pool({.device = traits, .table = table, .families = MatmulFamilies(traits, rate)});
//   absl::StatusOr<PoolPick> pick = pool.Choose(problem);
//   if (pick.ok()) { ... pool.Prepare(pick->member, args, scratch) ... }

#pragma once

#include <array>
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
#include "kernels/cuda/matmul/family.h"
#include "kernels/cuda/matmul/selector.h"
#include "kernels/cuda/matmul/tma_family.h"
#include "kernels/kernel.h"

namespace gemmd::kernels::cuda {

struct PoolPick {
  int member = -1;      // of the pool, and of kernels()
  KernelChoice choice;  // `kernel` lives as long as the pool
};

struct GemmPoolOptions {
  DeviceTraits device;
  TuningTable table;
  double memory_bytes_per_s = 0;       // 0: unknown
  TmaPreparer* prepare_tma = nullptr;  // of the TMA family; may be null where nothing is prepared
  // Beside the TMA family, which every pool has.
  std::vector<std::shared_ptr<const MatmulFamily>> families;
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
  // Whether a Tuner may measure the member: one of the TMA family.
  bool tunable(int member) const { return members_[member].family == tma_.get(); }

  // The kernel for `problem`, or the one called `forced` unless that is empty. NOT_FOUND when none
  // is called so; UNIMPLEMENTED, with the reasons, when it, or every kernel, cannot serve. kShipped
  // chooses as if nothing had been laid over the table.
  enum class By { kTuned, kShipped };
  absl::StatusOr<PoolPick> Choose(const MatmulProblem& problem, std::string_view forced = "",
                                  By by = By::kTuned) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Of the member's launches, for a problem that it serves: device memory that they share.
  int64_t ScratchBytes(int member, const MatmulProblem& problem) const;
  // MatmulFamily::Prepare. In pool_prepare.cc.
  absl::StatusOr<std::unique_ptr<const PreparedMatmul>> Prepare(int member, const MatmulArgs& args,
                                                                std::byte* scratch) const;

  // Lays `tuned` over the table that the pool was made with, in the place of what was laid there
  // before. Choices made from then on follow it.
  void SetTuned(const TuningTable& tuned) ABSL_LOCKS_EXCLUDED(mutex_);

  // Every member: the chosen one, the others that could serve, best first, those that cannot.
  // `why_not` tells for each but the chosen one what it lacks or by how much it lost.
  std::vector<Candidate> Explain(const MatmulProblem& problem) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // infos_[i] describes members_[i].
  struct Member {
    const MatmulFamily* family;
    int index;        // in it
    std::string off;  // why; empty when enabled
  };

  void AddFamily(const MatmulFamily& family);
  // Of a member that applies no gate, a problem with one is its product's and a gate's.
  std::string WhyNot(const Member& member, const MatmulProblem& problem) const;
  double Seconds(const Member& member, const MatmulProblem& problem) const;
  // `seconds`: of the kernel alone, or with what the pool puts behind it.
  PoolPick PickOf(int member, ChoiceReason reason, double seconds) const;
  absl::StatusOr<PoolPick> ChooseForced(const MatmulProblem& problem,
                                        std::string_view forced) const;
  absl::StatusOr<PoolPick> ChooseBest(const GemmSelector& selector,
                                      const MatmulProblem& problem) const;
  // The quickest of such a standing beside the TMA family. Appends to `reasons` what each lacks.
  std::optional<PoolPick> Quickest(Standing standing, const MatmulProblem& problem,
                                   std::string& reasons) const;
  double GateSeconds(const MatmulProblem& problem) const;  // behind a product; 0 without a gate
  std::shared_ptr<const GemmSelector> selector(By by) const ABSL_LOCKS_EXCLUDED(mutex_);

  const GemmPoolOptions options_;
  const std::unique_ptr<const TmaFamily> tma_;
  std::vector<KernelInfo> infos_;  // never resized after construction: choices point at the names
  std::vector<Member> members_;    // the TMA family's first: a variant's is at its IndexOf
  absl::flat_hash_map<std::string_view, int> by_name_;  // into members_
  std::vector<GemmVariant> enabled_;
  mutable absl::Mutex mutex_;
  // By By. Shared with choices under way.
  std::array<std::shared_ptr<const GemmSelector>, 2> selectors_ ABSL_GUARDED_BY(mutex_);
  mutable std::array<absl::flat_hash_map<MatmulProblem, PoolPick>, 2> remembered_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::kernels::cuda
