// Ringing from the host and waiting there.

#include "client/armed/slot.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/client/armed/fake_daemon.h"

namespace gemmd::armed {
namespace {

using testing::HasSubstr;

int32_t Runs(uint32_t) { return 0; }

std::shared_ptr<Region> OpenRegion(const FakeDaemon& daemon) {
  Outcome why;
  std::shared_ptr<Region> region = Region::Open(daemon.Parts(), why);
  EXPECT_TRUE(why.ok()) << why.message;
  return region;
}

TEST(SlotTest, ARingRunsTheProgramOnceAndItsReportTellsOfIt) {
  FakeDaemon daemon(Runs);
  daemon.StartPoller(/*sleeps=*/true);
  Slot slot(OpenRegion(daemon), 3, {});
  EXPECT_EQ(slot.Report().run, 0u);
  for (uint64_t run = 1; run <= 3; ++run) {
    ASSERT_TRUE(slot.Ring().ok());
    const Outcome ran = slot.Wait(10);
    ASSERT_TRUE(ran.ok()) << ran.message;
    EXPECT_EQ(slot.Report().run, run);
    EXPECT_EQ(slot.Report().device_ns, 1003u);
    EXPECT_TRUE(slot.Status().ok());
  }
  EXPECT_EQ(daemon.runs(), 3);
}

// The hand-over of the wake-up is a race by nature: many of them, to a poller that sleeps each
// time.
TEST(SlotTest, NoRingOfTwentyThousandIsLostOnAPollerThatSleeps) {
  FakeDaemon daemon(Runs);
  daemon.StartPoller(/*sleeps=*/true);
  Slot slot(OpenRegion(daemon), 0, {});
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_TRUE(slot.Ring().ok());
    const Outcome ran = slot.Wait(30);
    ASSERT_TRUE(ran.ok()) << i << ": " << ran.message;
  }
  EXPECT_EQ(daemon.runs(), 20'000);
}

TEST(SlotTest, AWaitThatSleepsIsWoken) {
  FakeDaemon daemon([](uint32_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than a wait spins
    return 0;
  });
  daemon.StartPoller(/*sleeps=*/false);
  Slot slot(OpenRegion(daemon), 0, {});
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(slot.Ring().ok());
    ASSERT_TRUE(slot.Wait(-1).ok());
  }
}

TEST(SlotTest, SlotsOfManyThreadsDoNotDisturbEachOther) {
  FakeDaemon daemon([](uint32_t slot) { return static_cast<int32_t>(slot % 2 == 0 ? 0 : 9); });
  daemon.StartPoller(/*sleeps=*/true);
  const std::shared_ptr<Region> region = OpenRegion(daemon);
  std::vector<std::thread> threads;
  for (uint32_t index = 0; index < 4; ++index) {
    threads.emplace_back([&region, index] {
      Slot slot(region, index, {});
      for (int i = 0; i < 500; ++i) {
        ASSERT_TRUE(slot.Ring().ok());
        ASSERT_EQ(slot.Wait(30).ok(), index % 2 == 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemon.runs(), 2000);
}

TEST(SlotTest, AFailedRunSaysWhatTheDaemonSaysAndTheNextMayRun) {
  int32_t code = 9;
  FakeDaemon daemon([&](uint32_t) { return code; });
  daemon.StartPoller(/*sleeps=*/false);
  Slot slot(OpenRegion(daemon), 0, {});
  ASSERT_TRUE(slot.Ring().ok());
  const Outcome failed = slot.Wait(10);
  EXPECT_EQ(failed.code, Code::kFailedPrecondition);
  EXPECT_THAT(failed.message, HasSubstr("FAKE: the program failed"));
  EXPECT_EQ(slot.Status().code, Code::kFailedPrecondition);
  code = 0;
  ASSERT_TRUE(slot.Ring().ok());
  EXPECT_TRUE(slot.Wait(10).ok());
  EXPECT_TRUE(slot.Status().ok());
}

TEST(SlotTest, RingsAndWaitsOutOfTurnAreRefused) {
  FakeDaemon daemon(Runs);
  daemon.StartPoller(/*sleeps=*/false);
  Slot slot(OpenRegion(daemon), 7, {});
  EXPECT_THAT(slot.Wait(0).message, HasSubstr("ring it first"));
  ASSERT_TRUE(slot.Ring().ok());
  const Outcome again = slot.Ring();
  EXPECT_EQ(again.code, Code::kFailedPrecondition);
  EXPECT_THAT(again.message, HasSubstr("slot 7 was rung"));
  EXPECT_TRUE(slot.Wait(10).ok());
}

TEST(SlotTest, AWaitGivesUpAndMayBeRepeated) {
  FakeDaemon daemon(Runs);  // nobody polls yet
  Slot slot(OpenRegion(daemon), 0, {});
  ASSERT_TRUE(slot.Ring().ok());
  EXPECT_EQ(slot.Wait(0.01).code, Code::kDeadlineExceeded);
  EXPECT_EQ(slot.Wait(0).code, Code::kDeadlineExceeded);
  EXPECT_FALSE(slot.Done());
  daemon.StartPoller(/*sleeps=*/false);
  EXPECT_TRUE(slot.Wait(10).ok());
}

TEST(SlotTest, NothingIsRungFromTheSessionsEndOn) {
  FakeDaemon daemon(Runs);
  Slot slot(OpenRegion(daemon), 0, {});
  daemon.EndSession();
  const Outcome ended = slot.Ring();  // at once: a stream's ring would leave old results
  EXPECT_EQ(ended.code, Code::kUnavailable);
  EXPECT_THAT(ended.message, HasSubstr("session has ended"));
  EXPECT_EQ(daemon.Gate(0), GEMMD_ARMED_IDLE);
}

TEST(SlotTest, TheSessionsEndEndsWaitsAndRings) {
  FakeDaemon daemon(Runs);
  Slot slot(OpenRegion(daemon), 0, {});
  ASSERT_TRUE(slot.Ring().ok());
  daemon.EndSession();
  const Outcome ended = slot.Wait(20);
  EXPECT_EQ(ended.code, Code::kUnavailable);
  EXPECT_THAT(ended.message, HasSubstr("session has ended"));
  EXPECT_EQ(slot.Ring().code, Code::kUnavailable);
  EXPECT_EQ(slot.Status().code, Code::kUnavailable);
}

TEST(SlotTest, ADaemonThatIsKilledWithWorkRungEndsTheWait) {
  auto daemon = std::make_unique<FakeDaemon>(Runs);
  // The child listens and polls; this process keeps the memory only.
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    FakeDaemon own([](uint32_t slot) {
      if (slot == 1) pause();  // the run that never ends
      return 0;
    });
    const RegionParts parts = own.Parts();
    const std::string line = std::to_string(parts.memory_fd) + " " + std::to_string(parts.wake_fd) +
                             " " + parts.share_socket + "\n";
    if (write(ready[1], line.data(), line.size()) < 0) _exit(1);
    own.Poll();
  }
  char line[200] = {};
  ASSERT_GT(read(ready[0], line, sizeof(line) - 1), 0);
  int memory = 0, wake = 0;
  char socket[100] = {};
  ASSERT_EQ(std::sscanf(line, "%d %d %99s", &memory, &wake, socket), 3);
  const std::string fds = "/proc/" + std::to_string(child) + "/fd/";
  RegionParts parts = daemon->Parts();
  close(parts.memory_fd);
  parts.memory_fd = open((fds + std::to_string(memory)).c_str(), O_RDWR | O_CLOEXEC);
  parts.share_socket = socket;
  Outcome why;
  const std::shared_ptr<Region> region = Region::Open(parts, why);
  ASSERT_NE(region, nullptr) << why.message;
  Slot fine(region, 0, {}), stuck(region, 1, {});
  ASSERT_TRUE(fine.Ring().ok());
  ASSERT_TRUE(fine.Wait(20).ok());
  ASSERT_TRUE(stuck.Ring().ok());
  EXPECT_EQ(stuck.Wait(0.05).code, Code::kDeadlineExceeded);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const Outcome ended = stuck.Wait(20);
  EXPECT_EQ(ended.code, Code::kUnavailable);
  EXPECT_THAT(ended.message, HasSubstr("daemon has ended"));
  EXPECT_EQ(fine.Ring().code, Code::kUnavailable);
}

TEST(SlotTest, ARingOfASlotThatWasGivenUpIsEnded) {
  FakeDaemon daemon(Runs);
  const std::shared_ptr<Region> region = OpenRegion(daemon);
  { Slot slot(region, 4, {}); }
  *region->gate(4) = GEMMD_ARMED_RUNG;  // as a stream does that was not synchronised
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (region->done(4)->done == 0 && std::chrono::steady_clock::now() < end) usleep(1000);
  EXPECT_EQ(region->done(4)->done, GEMMD_ARMED_FAILED);
  EXPECT_EQ(daemon.Gate(4), GEMMD_ARMED_IDLE);
}

// As an object that somebody kept after its plan was disarmed, and the daemon armed another there.
TEST(SlotTest, AnOldOwnersEndEndsNoRingOfANewOne) {
  FakeDaemon daemon(Runs);
  const std::shared_ptr<Region> region = OpenRegion(daemon);
  auto old = std::make_unique<Slot>(region, 4, Slot::Options{});
  Slot fresh(region, 4, {});
  old.reset();
  ASSERT_TRUE(fresh.Ring().ok());
  // Longer than the region's thread waits between two looks.
  const Outcome early = fresh.Wait(0.8);
  EXPECT_EQ(early.code, Code::kDeadlineExceeded) << early.message;
  EXPECT_EQ(daemon.Gate(4), GEMMD_ARMED_RUNG);
  daemon.StartPoller(/*sleeps=*/false);
  const Outcome ran = fresh.Wait(20);
  EXPECT_TRUE(ran.ok()) << ran.message;
}

TEST(RegionTest, WhatIsNoRegionIsRefused) {
  FakeDaemon daemon(Runs);
  Outcome why;
  RegionParts parts = daemon.Parts();
  parts.layout_version = 99;
  EXPECT_EQ(Region::Open(parts, why), nullptr);
  EXPECT_THAT(why.message, HasSubstr("layout 99"));

  parts = daemon.Parts();
  parts.slots = 1024;
  EXPECT_EQ(Region::Open(parts, why), nullptr);
  EXPECT_THAT(why.message, HasSubstr("1024 slots has"));

  parts = daemon.Parts();
  parts.share_socket = "unix-abstract:nobody listens here";
  EXPECT_EQ(Region::Open(parts, why), nullptr);
  EXPECT_EQ(why.code, Code::kUnavailable);

  parts = daemon.Parts();
  close(parts.memory_fd);
  parts.memory_fd = memfd_create("unsealed", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(parts.memory_fd, parts.size_bytes), 0);
  EXPECT_EQ(Region::Open(parts, why), nullptr);
  EXPECT_THAT(why.message, HasSubstr("sealed"));

  parts = daemon.Parts();
  close(parts.memory_fd);
  parts.memory_fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(Region::Open(parts, why), nullptr);
  EXPECT_THAT(why.message, HasSubstr("holds 0 bytes"));
}

}  // namespace
}  // namespace gemmd::armed
