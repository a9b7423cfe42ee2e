// ArmedPoller: the daemon's one thread that looks at the gates of armed plans, takes what is rung
// and submits it. It spins while there are rings and for a while after, and sleeps otherwise.
//
// No ring is lost when it goes to sleep. It says that it will, to every region and to its
// ArmedWaker, then looks at all gates once more; a caller sets its gate and then reads whether the
// poller sleeps. With a full fence in between on either side one of the two sees the other. A
// stream that rings does not look; while slots are armed that streams ring, the poller looks every
// kNap by itself.

#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/armed/armed_region.h"
#include "server/engine/config.h"

namespace gemmd::server {

class ArmedPoller {
 public:
  static constexpr std::chrono::milliseconds kNap{1};

  ArmedPoller(const SchedulerConfig& config, ArmedMetrics& metrics);
  ~ArmedPoller() { Stop(); }

  ArmedWaker& waker() { return waker_; }
  absl::Duration linger() const { return absl::FromChrono(linger_.load()); }
  absl::Duration stream_linger() const { return absl::FromChrono(stream_linger_.load()); }

  // The region's rings are taken from now on, until its session ends.
  void Add(std::shared_ptr<ArmedRegion> region) ABSL_LOCKS_EXCLUDED(mutex_);
  void Reconfigure(const SchedulerConfig& config);
  // Takes nothing any more. Programs under way may still end.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  using Regions = std::vector<std::shared_ptr<ArmedRegion>>;
  struct Watched {
    std::shared_ptr<ArmedRegion> region;
    uint64_t ends = 0;  // that it was seen to have had
  };

  void Run();
  void Remove(const ArmedRegion& region) ABSL_LOCKS_EXCLUDED(mutex_);
  void Refresh() ABSL_LOCKS_EXCLUDED(mutex_);
  void LookOnce();
  void Sleep();
  void AwaitWake();
  bool HasRings() const;
  void StayAwake(const ArmedRegion& region, Clock::time_point from);

  ArmedMetrics& metrics_;
  ArmedWaker waker_;
  const UniqueFd epoll_;
  std::atomic<std::chrono::nanoseconds> linger_, stream_linger_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> version_{0};  // of regions_
  absl::Mutex mutex_;
  Regions regions_ ABSL_GUARDED_BY(mutex_);
  // The thread's own:
  std::vector<Watched> watched_;
  uint64_t watched_version_ = 0;
  Clock::time_point awake_until_;
  std::thread thread_;
};

}  // namespace gemmd::server
