#include "server/engine/armed/armed_poller.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "prometheus/counter.h"
#include "server/engine/scheduling/memory_fence.h"

namespace gemmd::server {
namespace {

constexpr uint64_t kWaker = 0;  // sessions' keys begin with 1
// Looks between two yields: with fewer processors than threads that spin, callers need this one
// too.
constexpr int kLooks = 32;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ArmedPoller::ArmedPoller(const SchedulerConfig& config, ArmedMetrics& metrics)
    : metrics_(metrics), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  Reconfigure(config);
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = kWaker}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, waker_.fd(), &event);
  thread_ = std::thread([this] { Run(); });
}

void ArmedPoller::Stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  waker_.Wake();
  thread_.join();
  watched_.clear();
  absl::MutexLock lock(&mutex_);
  regions_.clear();
}

void ArmedPoller::Reconfigure(const SchedulerConfig& config) {
  linger_.store(absl::ToChronoNanoseconds(config.armed_linger));
  stream_linger_.store(absl::ToChronoNanoseconds(config.armed_stream_linger));
}

void ArmedPoller::Add(std::shared_ptr<ArmedRegion> region) {
  // A client may do anything with its eventfd, reading it included: edges tell of writes without a
  // read of ours, which it could block.
  epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.u64 = region->key()}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, region->wake_fd(), &event);
  absl::MutexLock lock(&mutex_);
  regions_.push_back(std::move(region));
  version_.fetch_add(1);
  waker_.Wake();
}

void ArmedPoller::Remove(const ArmedRegion& region) {
  epoll_event event = {};
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, region.wake_fd(), &event);
  absl::MutexLock lock(&mutex_);
  std::erase_if(regions_, [&](const auto& one) { return one.get() == &region; });
  version_.fetch_add(1);
  waker_.Wake();
}

void ArmedPoller::Refresh() {
  const uint64_t version = version_.load();
  if (version == watched_version_) return;
  std::vector<Watched> old = std::move(watched_);  // the last share of a region may be here
  watched_.clear();
  absl::MutexLock lock(&mutex_);
  watched_version_ = version_.load();
  for (const auto& region : regions_) {
    watched_.push_back({.region = region, .ends = region->ends()});
  }
}

void ArmedPoller::StayAwake(const ArmedRegion& region, Clock::time_point from) {
  const auto linger = region.rung_by_stream() ? stream_linger_.load() : linger_.load();
  awake_until_ = std::max(awake_until_, from + linger);
}

void ArmedPoller::LookOnce() {
  for (Watched& one : watched_) {
    if (one.region->ended()) {
      Remove(*one.region);
      continue;
    }
    const bool rung = one.region->Poll();
    const uint64_t ends = one.region->ends();
    if (!rung && ends == one.ends) continue;
    one.ends = ends;
    StayAwake(*one.region, Clock::now());
  }
}

void ArmedPoller::Run() {
  Clock::time_point awake_since = Clock::now();
  for (int looks = 0; !stopping_.load(std::memory_order_relaxed); ++looks) {
    Refresh();
    LookOnce();
    const Clock::time_point now = Clock::now();
    if (now < awake_until_) {
      looks % kLooks == 0 ? std::this_thread::yield() : Pause();
      continue;
    }
    metrics_.poll_seconds.Increment(std::chrono::duration<double>(now - awake_since).count());
    Sleep();
    awake_since = Clock::now();
  }
}

bool ArmedPoller::HasRings() const {
  return std::any_of(watched_.begin(), watched_.end(),
                     [](const Watched& one) { return one.region->HasRings(); });
}

void ArmedPoller::Sleep() {
  waker_.SetSleeping(true);
  for (const Watched& one : watched_) one.region->SetPollerSleeps(true);
  // With the fence of whoever rings or ends a run: one of us sees the other.
  MemoryFence();
  AwaitWake();
  waker_.SetSleeping(false);
  for (const Watched& one : watched_) one.region->SetPollerSleeps(false);
}

void ArmedPoller::AwaitWake() {
  const bool naps = std::any_of(watched_.begin(), watched_.end(),
                                [](const Watched& one) { return one.region->rung_by_stream(); });
  while (!stopping_.load() && version_.load() == watched_version_ && !HasRings()) {
    std::array<epoll_event, 16> events;
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(),
                                 naps ? static_cast<int>(kNap.count()) : -1);
    if (count <= 0) continue;  // a nap is over, or a signal came
    const Clock::time_point now = Clock::now();
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == kWaker) {
        waker_.Clear();
        continue;
      }
      // Its owner rings next, perhaps from a stream.
      for (const Watched& one : watched_) {
        if (one.region->key() == events[i].data.u64) StayAwake(*one.region, now);
      }
    }
    return;
  }
}

}  // namespace gemmd::server
