#include "server/engine/scheduling/fair_queue.h"

#include <algorithm>
#include <utility>

namespace gemmd::server {
namespace {

// Seconds of device time: little beside the look-ahead, and enough that eight clients with programs
// of 16 us do not fall back to a message each. At 100 us and 200 they did, now and then.
constexpr double kTurn = 500e-6;

}  // namespace

bool FairQueue::SessionQueue::empty() const {
  return std::all_of(jobs.begin(), jobs.end(), [](const auto& queue) { return queue.empty(); });
}

FairQueue::TenantQueue& FairQueue::QueueOf(const Tenant& tenant) {
  if (tenant.index() >= static_cast<int>(tenants_.size())) tenants_.resize(tenant.index() + 1);
  auto& slot = tenants_[tenant.index()];
  if (slot == nullptr) {
    slot = std::make_unique<TenantQueue>();
    slot->tenant = &tenant;
  }
  return *slot;
}

void FairQueue::Push(std::shared_ptr<Job> job) {
  TenantQueue& tenant = QueueOf(*job->tenant);
  // Whoever comes back from idleness starts at the present: time not used is not saved up.
  if (tenant.size == 0) tenant.virtual_time = std::max(tenant.virtual_time, clock_);
  auto& session = tenant.sessions[job->session_key];
  if (session == nullptr) {
    session = std::make_unique<SessionQueue>();
    session->key = job->session_key;
  }
  if (session->empty()) {
    session->virtual_time = std::max(session->virtual_time, tenant.session_clock);
    tenant.active.push_back(session.get());
  }
  ++tenant.size;
  ++size_;
  ++sizes_[static_cast<int>(job->priority)];
  tenant.queued_seconds += job->estimate;
  queued_seconds_ += job->estimate;
  session->jobs[static_cast<int>(job->priority)].push_back(std::move(job));
}

int64_t FairQueue::EffectivePriority(const Job& job, absl::Time now) const {
  const int64_t steps = aging_ > absl::ZeroDuration() ? (now - job.accepted) / aging_ : 0;
  return static_cast<int>(job.priority) - steps;
}

double FairQueue::Place(const TenantQueue& tenant, const SessionQueue& session, const Job& job) {
  if (session.key != tenant.turn) return session.virtual_time;
  return session.virtual_time - std::max(kTurn - job.estimate, 0.0);
}

FairQueue::Choice FairQueue::Choose(TenantQueue& tenant, absl::Time now) const {
  Choice best;
  for (SessionQueue* session : tenant.active) {
    for (int priority = 0; priority < kPriorities; ++priority) {
      if (session->jobs[priority].empty()) continue;
      const Job& job = *session->jobs[priority].front();
      const int64_t effective = EffectivePriority(job, now);
      const double place = Place(tenant, *session, job);
      const bool better = best.session == nullptr || effective < best.effective ||
                          (effective == best.effective && place < best.place);
      if (better) best = {session, priority, effective, place};
    }
  }
  return best;
}

std::shared_ptr<Job> FairQueue::Pop(absl::Time now) {
  TenantQueue* next = nullptr;
  for (const auto& tenant : tenants_) {
    if (tenant == nullptr || tenant->size == 0) continue;
    if (next == nullptr || tenant->virtual_time < next->virtual_time) next = tenant.get();
  }
  if (next == nullptr) return nullptr;
  const Choice choice = Choose(*next, now);
  auto& queue = choice.session->jobs[choice.priority];
  std::shared_ptr<Job> job = std::move(queue.front());
  queue.pop_front();
  clock_ = next->virtual_time;
  next->session_clock = std::max(next->session_clock, choice.session->virtual_time);
  next->turn = choice.session->key;
  next->virtual_time += job->estimate / next->tenant->weight();
  choice.session->virtual_time += job->estimate;
  Forget(*next, *job);
  if (choice.session->empty()) Deactivate(*next, choice.session);
  return job;
}

void FairQueue::Forget(TenantQueue& tenant, const Job& job) {
  --tenant.size;
  --size_;
  --sizes_[static_cast<int>(job.priority)];
  // An empty queue resets the sums, so that rounding cannot accumulate.
  tenant.queued_seconds = tenant.size == 0 ? 0 : tenant.queued_seconds - job.estimate;
  queued_seconds_ = size_ == 0 ? 0 : queued_seconds_ - job.estimate;
}

void FairQueue::Deactivate(TenantQueue& tenant, SessionQueue* session) {
  auto it = std::find(tenant.active.begin(), tenant.active.end(), session);
  *it = tenant.active.back();
  tenant.active.pop_back();
}

bool FairQueue::Remove(const Job& job) {
  TenantQueue& tenant = QueueOf(*job.tenant);
  auto found = tenant.sessions.find(job.session_key);
  if (found == tenant.sessions.end()) return false;
  auto& queue = found->second->jobs[static_cast<int>(job.priority)];
  auto it = std::find_if(queue.begin(), queue.end(),
                         [&](const auto& queued) { return queued.get() == &job; });
  if (it == queue.end()) return false;
  const std::shared_ptr<Job> keep = *it;  // `job` may live by this queue alone
  queue.erase(it);
  Forget(tenant, *keep);
  if (found->second->empty()) Deactivate(tenant, found->second.get());
  return true;
}

std::vector<std::shared_ptr<Job>> FairQueue::RemoveSession(uint64_t session_key) {
  std::vector<std::shared_ptr<Job>> removed;
  for (const auto& tenant : tenants_) {
    if (tenant == nullptr) continue;
    auto found = tenant->sessions.find(session_key);
    if (found == tenant->sessions.end()) continue;
    SessionQueue& session = *found->second;
    if (!session.empty()) Deactivate(*tenant, &session);
    for (auto& queue : session.jobs) {
      for (auto& job : queue) {
        Forget(*tenant, *job);
        removed.push_back(std::move(job));
      }
    }
    tenant->sessions.erase(found);
  }
  return removed;
}

void FairQueue::Correct(const Tenant& tenant, uint64_t session_key, double seconds) {
  TenantQueue& queue = QueueOf(tenant);
  queue.virtual_time += seconds / tenant.weight();
  auto found = queue.sessions.find(session_key);
  if (found != queue.sessions.end()) found->second->virtual_time += seconds;
}

double FairQueue::WaitSeconds(const Tenant& tenant) const {
  if (size_ == 0) return 0;
  double own = 0, weights = tenant.weight();
  for (const auto& queue : tenants_) {
    if (queue == nullptr || queue->size == 0) continue;
    if (queue->tenant == &tenant) {
      own = queue->queued_seconds;
    } else {
      weights += queue->tenant->weight();
    }
  }
  // Others can delay it by their share at most, and by no more than all they have queued.
  return std::min(own * weights / tenant.weight(), queued_seconds_);
}

}  // namespace gemmd::server
