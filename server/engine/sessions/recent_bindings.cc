#include "server/engine/sessions/recent_bindings.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gemmd::server {
namespace {

bool IsOf(const RecentBindings::Entry& entry, const std::shared_ptr<const Plan>& plan) {
  return !entry.plan.owner_before(plan) && !plan.owner_before(entry.plan);
}

// Whether the plan, bound so, runs on the buffer of that handle.
bool Binds(const Plan& plan, absl::Span<const Rebinding> rebind, const Handle& handle) {
  bool replaced = false;
  for (const Rebinding& change : rebind) {
    if (change.to == handle) return true;
    replaced |= change.from == handle;
  }
  return !replaced && plan.slot_of.contains(handle);
}

}  // namespace

std::shared_ptr<const BoundBuffers> RecentBindings::Find(const std::shared_ptr<const Plan>& plan,
                                                         absl::Span<const Rebinding> rebind) {
  // The last used is the likeliest.
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (!IsOf(*entry, plan) || absl::MakeConstSpan(entry->rebind) != rebind) continue;
    entries_.splice(entries_.end(), entries_, std::next(entry).base());
    return entries_.back().buffers;
  }
  return nullptr;
}

RecentBindings::Forgotten RecentBindings::Add(Entry entry) {
  Forgotten forgotten;
  if (entries_.size() >= kMost) {
    forgotten = ForgetIf([](const Entry& old) { return old.plan.expired(); });
  }
  if (entries_.size() >= kMost) {
    forgotten.splice(forgotten.end(), entries_, entries_.begin());
  }
  entries_.push_back(std::move(entry));
  return forgotten;
}

template <typename Predicate>
RecentBindings::Forgotten RecentBindings::ForgetIf(Predicate predicate) {
  Forgotten forgotten;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (predicate(*entry)) forgotten.splice(forgotten.end(), entries_, entry);
    entry = next;
  }
  return forgotten;
}

RecentBindings::Forgotten RecentBindings::ForgetPlan(const std::shared_ptr<const Plan>& plan) {
  return ForgetIf([&](const Entry& entry) { return IsOf(entry, plan); });
}

RecentBindings::Forgotten RecentBindings::ForgetBuffers(absl::Span<const Handle> handles) {
  return ForgetIf([&](const Entry& entry) {
    const std::shared_ptr<const Plan> plan = entry.plan.lock();
    return plan == nullptr || std::any_of(handles.begin(), handles.end(), [&](const Handle& gone) {
             return Binds(*plan, entry.rebind, gone);
           });
  });
}

RecentBindings::Forgotten RecentBindings::ForgetAll() { return std::exchange(entries_, {}); }

}  // namespace gemmd::server
