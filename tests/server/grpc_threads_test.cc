#include "server/grpc_threads/grpc_threads.h"

#include <dlfcn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

int gemmd_default_grpc_threads = 5;

extern "C" unsigned gpr_cpu_num_cores();

namespace {
int loader_asked = 0;
}

// In front of the C library's.
extern "C" int dladdr(const void* address, Dl_info* info) noexcept {
  static const auto next =
      reinterpret_cast<int (*)(const void*, Dl_info*)>(dlsym(RTLD_NEXT, "dladdr"));
  ++loader_asked;
  return next(address, info);
}

namespace gemmd::grpc_threads {
namespace {

class BusyPollTest : public ::testing::Test {
 protected:
  BusyPollTest() : epoll_(epoll_create1(0)), event_(eventfd(0, EFD_NONBLOCK)) {
    epoll_event wanted{.events = EPOLLIN, .data = {}};
    EXPECT_EQ(epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &wanted), 0);
  }
  ~BusyPollTest() override {
    BusyPoll(0);
    close(event_);
    close(epoll_);
  }

  void Happens() const { EXPECT_EQ(eventfd_write(event_, 1), 0); }
  // How many events there were, which are over then.
  int Wait(int timeout_ms) const {
    epoll_event found;
    const int count = epoll_wait(epoll_, &found, 1, timeout_ms);
    eventfd_t value = 0;
    if (count > 0) {
      EXPECT_EQ(eventfd_read(event_, &value), 0);
    }
    return count;
  }
  // So that something has just happened.
  void Hear() const {
    Happens();
    EXPECT_EQ(Wait(-1), 1);
  }

  const int epoll_;
  const int event_;
};

TEST_F(BusyPollTest, OffItNeverLooks) {
  const Polled before = BusyPolled();
  Hear();
  EXPECT_EQ(Wait(1), 0);
  std::thread later([&] { Happens(); });
  EXPECT_EQ(Wait(-1), 1);
  later.join();
  EXPECT_EQ(BusyPolled().seconds, before.seconds);
  EXPECT_EQ(BusyPolled().found, before.found);
}

TEST_F(BusyPollTest, FindsWhatComesSoonAfterSomethingElse) {
  BusyPoll(60'000'000);
  Hear();
  const Polled before = BusyPolled();
  std::thread later([&] {
    absl::SleepFor(absl::Milliseconds(5));
    Happens();
  });
  EXPECT_EQ(Wait(-1), 1);
  later.join();
  EXPECT_EQ(BusyPolled().found, before.found + 1);
  EXPECT_GT(BusyPolled().seconds, before.seconds);
}

TEST_F(BusyPollTest, SleepsOnceItHasBeenQuietForSoLong) {
  BusyPoll(1000);
  Hear();
  EXPECT_EQ(Wait(20), 0);
  const Polled before = BusyPolled();
  EXPECT_EQ(Wait(5), 0);
  EXPECT_EQ(BusyPolled().seconds, before.seconds);
  std::thread later([&] {
    absl::SleepFor(absl::Milliseconds(5));
    Happens();
  });
  EXPECT_EQ(Wait(-1), 1);
  later.join();
  EXPECT_EQ(BusyPolled().found, before.found) << "of an event that woke it";
}

TEST_F(BusyPollTest, ATimeoutEndsLookingAndSleepAndIsNeverEarly) {
  for (int64_t microseconds : {2'000, 60'000'000}) {
    BusyPoll(microseconds);
    Hear();
    const absl::Time begin = absl::Now();
    EXPECT_EQ(Wait(10), 0);
    EXPECT_GE(absl::Now() - begin, absl::Milliseconds(10));
  }
  const Polled before = BusyPolled();
  EXPECT_EQ(Wait(0), 0);
  EXPECT_EQ(BusyPolled().seconds, before.seconds) << "a caller that looks by itself";
}

TEST(ProcessorsForGrpcTest, AProgramsOwnNumberIsAtMostWhatGrpcWouldRun) {
  EXPECT_EQ(ProcessorsForGrpc(64), 10);
  EXPECT_EQ(ProcessorsForGrpc(4), 4);
}

TEST(ProcessorsForGrpcTest, TheEnvironmentDecides) {
  const auto told = [](const char* threads) {
    setenv(kThreadsVariable, threads, 1);
    const long processors = ProcessorsForGrpc(8);
    unsetenv(kThreadsVariable);
    return processors;
  };
  EXPECT_EQ(told("9"), 18);
  EXPECT_EQ(told("99"), 32) << "gRPC runs 16 at most";
  EXPECT_EQ(told("0"), 8) << "as gRPC likes";
  EXPECT_EQ(told("two"), 8);
}

TEST(ProcessorsForExecutorTest, AProgramThatSaysHowManyThreadsKeepsItSmall) {
  EXPECT_EQ(ProcessorsForExecutor(64), 1u);
  setenv(kThreadsVariable, "0", 1);
  EXPECT_EQ(ProcessorsForExecutor(64), 64u) << "as gRPC likes";
  unsetenv(kThreadsVariable);
}

TEST(ProcessorsForExecutorTest, WhoIsNotTheExecutorIsLookedUpOnce) {
  const unsigned processors = gpr_cpu_num_cores();
  const int before = loader_asked;
  for (int i = 0; i < 100; ++i) {  // two places, in turns, as in an RPC
    EXPECT_EQ(gpr_cpu_num_cores(), processors);
    EXPECT_EQ(gpr_cpu_num_cores(), processors);
  }
  EXPECT_LE(loader_asked - before, 2);
}

TEST(SysconfTest, OthersHearTheTruth) {
  const long processors = sysconf(_SC_NPROCESSORS_CONF);
  setenv(kThreadsVariable, "16", 1);
  EXPECT_EQ(sysconf(_SC_NPROCESSORS_CONF), processors);
  unsetenv(kThreadsVariable);
  EXPECT_GT(sysconf(_SC_PAGESIZE), 0);
}

}  // namespace
}  // namespace gemmd::grpc_threads
