// FairQueue: which job a device runs next. Not thread-safe; the lane locks it.
//
// Device time is shared by weight among tenants that have work, and equally among a tenant's
// sessions, by start-time fair queueing (Goyal, Vin, Cheng: "Start-time Fair Queueing", 1996):
// every owner carries a virtual time that advances by the device time it used over its weight, and
// the least goes next. Unlike deficit round robin it needs no quantum, which would have to exceed
// the largest program, and it takes corrections: a job is charged its estimate when it is taken and
// the difference when its true time is known.
//
// A session's small programs go several at a time: it keeps its turn while the next one leaves it
// within kTurn of device time of the others. Their ends then come together and are answered
// together; one program of each session in turn would be one message for each.
//
// Within a tenant a higher priority goes first; waiting raises a job's priority by one class each
// `aging`. Priority never buys one tenant time of another. Jobs of one session and priority leave
// in the order they came.

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "server/engine/scheduling/job.h"

namespace gemmd::server {

class FairQueue {
 public:
  explicit FairQueue(absl::Duration aging) : aging_(aging) {}
  void set_aging(absl::Duration aging) { aging_ = aging; }

  void Push(std::shared_ptr<Job> job);
  // The next job, charged its estimate; null when empty.
  std::shared_ptr<Job> Pop(absl::Time now);
  // Takes a queued job out. False when it is not here (any more).
  bool Remove(const Job& job);
  // Takes out every job of a session and forgets the session.
  std::vector<std::shared_ptr<Job>> RemoveSession(uint64_t session_key);
  // Corrects what an earlier Pop charged: `seconds` is true time less estimate.
  void Correct(const Tenant& tenant, uint64_t session_key, double seconds);

  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }
  int64_t size(Priority priority) const { return sizes_[static_cast<int>(priority)]; }
  double queued_seconds() const { return queued_seconds_; }
  // Estimated time until a job that `tenant` pushed now would have had its share of the device.
  double WaitSeconds(const Tenant& tenant) const;

 private:
  struct SessionQueue {
    uint64_t key = 0;
    double virtual_time = 0;
    std::array<std::deque<std::shared_ptr<Job>>, kPriorities> jobs;
    bool empty() const;
  };
  struct TenantQueue {
    const Tenant* tenant = nullptr;
    double virtual_time = 0;
    double session_clock = 0;  // the virtual time of the session served last
    uint64_t turn = 0;         // that session
    double queued_seconds = 0;
    int64_t size = 0;
    absl::flat_hash_map<uint64_t, std::unique_ptr<SessionQueue>> sessions;
    std::vector<SessionQueue*> active;  // those with jobs
  };
  struct Choice {
    SessionQueue* session = nullptr;
    int priority = 0;
    int64_t effective = 0;
    double place = 0;
  };

  TenantQueue& QueueOf(const Tenant& tenant);
  Choice Choose(TenantQueue& tenant, absl::Time now) const;
  // The session's virtual time, less what is left of its turn once `job` has run.
  static double Place(const TenantQueue& tenant, const SessionQueue& session, const Job& job);
  int64_t EffectivePriority(const Job& job, absl::Time now) const;
  void Forget(TenantQueue& tenant, const Job& job);
  static void Deactivate(TenantQueue& tenant, SessionQueue* session);

  absl::Duration aging_;
  std::vector<std::unique_ptr<TenantQueue>>
      tenants_;       // by Tenant::index(); null before its first job
  double clock_ = 0;  // the virtual time of the tenant served last
  int64_t size_ = 0;
  std::array<int64_t, kPriorities> sizes_{};
  double queued_seconds_ = 0;
};

}  // namespace gemmd::server
