// RecentBindings: what a session's plans were bound to lately. A plan of hundreds of buffers mostly
// runs on the same ones as before, and looking each of them up, with the cold caches that the
// device's milliseconds leave behind, takes as long as a tenth of such a run.

#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "server/engine/sessions/bound_buffers.h"
#include "server/engine/sessions/handle.h"
#include "server/engine/sessions/plan.h"

namespace gemmd::server {

// A buffer in the place of one of a plan's.
struct Rebinding {
  Handle from;
  Handle to;
  friend bool operator==(const Rebinding&, const Rebinding&) = default;
};

// Thread-compatible: guarded by its session, which tells it of every handle that goes. So what is
// found here names buffers that are all there. Whether one has been published since is not known
// here.
class RecentBindings {
 public:
  static constexpr size_t kMost = 32;         // the longest unused gives way
  static constexpr size_t kFewestSlots = 16;  // below that, looking buffers up is as quick

  struct Entry {
    // Weak: a plan that is deleted is gone once its runs are. While this is here, its address is
    // no other's.
    std::weak_ptr<const Plan> plan;
    std::vector<Rebinding> rebind;
    std::shared_ptr<const BoundBuffers> buffers;
    Charge charge;  // of host memory
  };
  // Entries that are no longer remembered, for the caller to let go of without its lock: the last
  // share of a buffer frees it.
  using Forgotten = std::list<Entry>;

  // Null when it is not remembered.
  std::shared_ptr<const BoundBuffers> Find(const std::shared_ptr<const Plan>& plan,
                                           absl::Span<const Rebinding> rebind);
  Forgotten Add(Entry entry);

  Forgotten ForgetPlan(const std::shared_ptr<const Plan>& plan);
  Forgotten ForgetBuffers(absl::Span<const Handle> handles);
  Forgotten ForgetAll();

  size_t size() const { return entries_.size(); }

 private:
  template <typename Predicate>
  Forgotten ForgetIf(Predicate predicate);

  std::list<Entry> entries_;  // the longest unused first
};

}  // namespace gemmd::server
