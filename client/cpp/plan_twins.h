// PlanTwins: what a plan runs as when its inline data goes through shared memory. A twin is a plan
// of the same ops, with Copies from and to one place of that memory instead of Writes and Reads.

#ifndef GEMMD_CLIENT_CPP_PLAN_TWINS_H_
#define GEMMD_CLIENT_CPP_PLAN_TWINS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/inline_memory.h"
#include "client/cpp/ops.h"
#include "client/cpp/options.h"
#include "client/cpp/types.h"

namespace gemmd::client {

class SessionCore;

// One plan's. Thread-safe.
class PlanTwins {
 public:
  static constexpr size_t kMost = 4;  // runs at once; the others' data goes in messages

  // `ops`: the plan's.
  PlanTwins(const OpList& ops, std::string label) : ops_(ops), label_(std::move(label)) {}

  const OpList& ops() const { return ops_; }

  struct Place {
    std::shared_ptr<InlineMemory::Block> block;
    Handle plan;  // the twin for it
  };
  // A free place that has a twin; nothing when there is none. Runs whose outputs are kept have
  // other places, and programs in between too: the lowest free one would often be new.
  std::optional<Place> FreePlace(const SessionCore& session, int64_t bytes)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Why no run can have one more, RESOURCE_EXHAUSTED beyond kMost: to be asked before memory is
  // taken for it, which may make the memory grow.
  absl::Status HasRoom(const SessionCore& session) ABSL_LOCKS_EXCLUDED(mu_);
  // The twin for a block, made within the caller's time if there is none. RESOURCE_EXHAUSTED beyond
  // kMost, and whatever making it fails with; a refusal is final.
  absl::StatusOr<Handle> For(const SessionCore& session, const InlineMemory::Block& block,
                             const CallOptions& options) ABSL_LOCKS_EXCLUDED(mu_);
  // They cannot run, for the reason given.
  void TurnOff(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  // Deletes them, without waiting; false when there are none.
  bool Drop(const SessionCore& session) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Twin {
    Handle buffer;  // of the memory
    int64_t at;     // in it
    Handle plan;
  };
  // Those of memory that another buffer has taken the place of.
  void DropAllBut(const SessionCore& session, const Handle& buffer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const OpList ops_;
  const std::string label_;
  absl::Mutex mu_;  // held while one is made: others would make the same
  std::vector<Twin> twins_ ABSL_GUARDED_BY(mu_);
  absl::Status off_ ABSL_GUARDED_BY(mu_);
};

// A session's, to find those of all its plans. Thread-safe.
class AllPlanTwins {
 public:
  void Add(const std::shared_ptr<PlanTwins>& twins) ABSL_LOCKS_EXCLUDED(mu_);
  // Deletes every twin, where a quota has no room for the caller's plans beside them.
  bool Drop(const SessionCore& session) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  std::vector<std::weak_ptr<PlanTwins>> all_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_CPP_PLAN_TWINS_H_
