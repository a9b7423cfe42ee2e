#include <dlfcn.h>
#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "server/grpc_threads/environment.h"
#include "server/grpc_threads/grpc_threads.h"

namespace gemmd::grpc_threads {
namespace {

using EpollWait = int (*)(int, epoll_event*, int, int);

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kNsPerMs = 1000000;

struct State {
  std::atomic<int64_t> poll_ns{FromEnvironment(kBusyPollVariable) * 1000};
  std::atomic<int64_t> last_event_ns{0};
  std::atomic<int64_t> looked_ns{0};
  std::atomic<int64_t> found{0};
};
// Made at its first use: a library's threads may wait before this file's globals are made.
State& TheState() {
  static State state;
  return state;
}

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What stands behind this one: the C library's, or a sanitizer's.
EpollWait Next() {
  static const auto next = reinterpret_cast<EpollWait>(dlsym(RTLD_NEXT, "epoll_wait"));
  return next;
}

// What is left of `timeout_ms` after `passed_ns`, rounded up: a timer never comes early.
int Left(int timeout_ms, int64_t passed_ns) {
  if (timeout_ms < 0) return timeout_ms;
  const int64_t left_ns = timeout_ms * kNsPerMs - passed_ns;
  return left_ns <= 0 ? 0 : static_cast<int>((left_ns + kNsPerMs - 1) / kNsPerMs);
}

int Wait(int epoll, epoll_event* events, int most, int timeout_ms, int64_t poll_ns) {
  State& state = TheState();
  const int64_t begin = NowNs();
  const int64_t end = std::min(state.last_event_ns.load(std::memory_order_relaxed) + poll_ns,
                               timeout_ms < 0 ? kNever : begin + timeout_ms * kNsPerMs);
  int found = 0;
  int64_t now = begin;
  while (now < end && found == 0) {
    found = Next()(epoll, events, most, 0);
    if (found == 0) sched_yield();
    now = NowNs();
  }
  state.looked_ns.fetch_add(now - begin, std::memory_order_relaxed);
  if (found > 0) state.found.fetch_add(1, std::memory_order_relaxed);
  if (found == 0) found = Next()(epoll, events, most, Left(timeout_ms, now - begin));
  if (found > 0) state.last_event_ns.store(NowNs(), std::memory_order_relaxed);
  return found;
}

}  // namespace

void BusyPoll(int64_t microseconds) {
  TheState().poll_ns.store(microseconds * 1000, std::memory_order_relaxed);
}

Polled BusyPolled() {
  const State& state = TheState();
  return {.seconds = static_cast<double>(state.looked_ns.load(std::memory_order_relaxed)) * 1e-9,
          .found = state.found.load(std::memory_order_relaxed)};
}

}  // namespace gemmd::grpc_threads

extern "C" __attribute__((visibility("default"))) int epoll_wait(int epoll, epoll_event* events,
                                                                 int most, int timeout_ms) {
  using namespace gemmd::grpc_threads;
  const int64_t poll_ns = TheState().poll_ns.load(std::memory_order_relaxed);
  if (poll_ns <= 0 || timeout_ms == 0) return Next()(epoll, events, most, timeout_ms);
  return Wait(epoll, events, most, timeout_ms, poll_ns);
}
