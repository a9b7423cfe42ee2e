#include "server/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "server/exit_status.h"
#include "tests/server/engine/fake_clock.h"

namespace gemmd::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

class SupervisorTest : public testing::Test {
 protected:
  std::vector<size_t> TakeDue() { return supervisor_.TakeDue(clock_.Now()); }
  void Ready(size_t child) { supervisor_.Ready(child, clock_.Now()); }
  absl::Duration Ended(size_t child, const ChildEnd& end) {
    return supervisor_.Ended(child, end, clock_.Now());
  }
  void StartBoth() {
    ASSERT_THAT(TakeDue(), ElementsAre(0, 1));
    Ready(0);
    Ready(1);
  }
  // Ends `child`, waits for its turn and starts it. Returns how long that took.
  absl::Duration Restart(size_t child) {
    const absl::Duration delay = Ended(child, {.status = kNoDevice});
    clock_.Advance(delay);
    EXPECT_THAT(TakeDue(), ElementsAre(child));
    return delay;
  }

  FakeClock clock_;
  Supervisor supervisor_{2};
};

TEST_F(SupervisorTest, AllAreDueAtOnceAndOnce) {
  EXPECT_THAT(TakeDue(), ElementsAre(0, 1));
  EXPECT_THAT(TakeDue(), IsEmpty());
  EXPECT_FALSE(supervisor_.all_serve());
  Ready(1);
  EXPECT_FALSE(supervisor_.all_serve());
  Ready(0);
  EXPECT_TRUE(supervisor_.all_serve());
  EXPECT_EQ(supervisor_.exit_status(), std::nullopt);
}

TEST_F(SupervisorTest, OneThatServedIsStartedAgainAfterASecond) {
  StartBoth();
  EXPECT_EQ(Ended(1, {.status = kNoDevice}), absl::Seconds(1));
  EXPECT_FALSE(supervisor_.all_serve());
  EXPECT_FALSE(supervisor_.stopping());
  clock_.Advance(absl::Milliseconds(999));
  EXPECT_THAT(TakeDue(), IsEmpty());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_THAT(TakeDue(), ElementsAre(1));
  Ready(1);
  EXPECT_TRUE(supervisor_.all_serve());
}

TEST_F(SupervisorTest, HoweverItEnds) {
  for (const ChildEnd& end : {ChildEnd{.signal = SIGKILL}, ChildEnd{.status = kOk},
                              ChildEnd{.status = kBadConfig}, ChildEnd{.status = kCutShort}}) {
    Supervisor supervisor(1);
    supervisor.TakeDue(clock_.Now());
    supervisor.Ready(0, clock_.Now());
    EXPECT_EQ(supervisor.Ended(0, end, clock_.Now()), absl::Seconds(1)) << end.status;
    EXPECT_EQ(supervisor.exit_status(), std::nullopt);
  }
}

TEST_F(SupervisorTest, EachTimeLaterUpToALimit) {
  StartBoth();
  std::vector<absl::Duration> delays;
  for (int i = 0; i < 7; ++i) {
    delays.push_back(Restart(0));
    Ready(0);
  }
  EXPECT_THAT(delays,
              ElementsAre(absl::Seconds(1), absl::Seconds(2), absl::Seconds(4), absl::Seconds(8),
                          absl::Seconds(16), absl::Seconds(30), absl::Seconds(30)));
  // The other one's failures are its own.
  EXPECT_EQ(Restart(1), absl::Seconds(1));
}

TEST_F(SupervisorTest, AMinuteOfServiceForgets) {
  StartBoth();
  for (int i = 0; i < 3; ++i) {
    Restart(0);
    Ready(0);
  }
  clock_.Advance(absl::Seconds(59));
  EXPECT_EQ(Restart(0), absl::Seconds(8));
  Ready(0);
  clock_.Advance(absl::Seconds(60));
  EXPECT_EQ(Restart(0), absl::Seconds(1));
}

TEST_F(SupervisorTest, OneThatDoesNotComeBackIsTriedOn) {
  StartBoth();
  EXPECT_EQ(Restart(0), absl::Seconds(1));
  // Its long start is no service.
  clock_.Advance(absl::Minutes(5));
  EXPECT_EQ(Restart(0), absl::Seconds(2));
  EXPECT_EQ(Restart(0), absl::Seconds(4));
  EXPECT_FALSE(supervisor_.stopping());
}

TEST_F(SupervisorTest, OneThatNeverServedEndsTheWholeWithItsStatus) {
  ASSERT_THAT(TakeDue(), ElementsAre(0, 1));
  Ready(0);
  EXPECT_EQ(Ended(1, {.status = kBadConfig}), absl::InfiniteDuration());
  EXPECT_TRUE(supervisor_.stopping());
  EXPECT_EQ(supervisor_.exit_status(), std::nullopt);  // the other still runs
  EXPECT_EQ(Ended(0, {.status = kCutShort}), absl::InfiniteDuration());
  EXPECT_THAT(supervisor_.exit_status(), Optional(static_cast<int>(kBadConfig)));
  EXPECT_THAT(TakeDue(), IsEmpty());
}

TEST_F(SupervisorTest, AStartThatEndsWithoutAFailureIsOne) {
  for (const ChildEnd& end : {ChildEnd{.signal = SIGSEGV}, ChildEnd{.status = kOk}}) {
    Supervisor supervisor(1);
    supervisor.TakeDue(clock_.Now());
    supervisor.Ended(0, end, clock_.Now());
    EXPECT_THAT(supervisor.exit_status(), Optional(static_cast<int>(kFailed)));
  }
}

TEST_F(SupervisorTest, StoppedItStartsNoneAndEndsWithTheLast) {
  StartBoth();
  Ended(0, {.status = kNoDevice});
  supervisor_.Stop();
  clock_.Advance(absl::Hours(1));
  EXPECT_THAT(TakeDue(), IsEmpty());
  EXPECT_EQ(supervisor_.exit_status(), std::nullopt);
  EXPECT_EQ(Ended(1, {.status = kOk}), absl::InfiniteDuration());
  // That of the one which had ended before is not counted: it had nothing to drain.
  EXPECT_THAT(supervisor_.exit_status(), Optional(static_cast<int>(kOk)));
}

TEST_F(SupervisorTest, StoppedTheWorstStatusCounts) {
  StartBoth();
  supervisor_.Stop();
  Ended(1, {.status = kCutShort});
  Ended(0, {.status = kOk});
  EXPECT_THAT(supervisor_.exit_status(), Optional(static_cast<int>(kCutShort)));
}

TEST_F(SupervisorTest, KilledWhileItDrainsItIsCutShort) {
  StartBoth();
  supervisor_.Stop();
  Ended(0, {.signal = SIGKILL});
  Ended(1, {.status = kOk});
  EXPECT_THAT(supervisor_.exit_status(), Optional(static_cast<int>(kCutShort)));
}

TEST_F(SupervisorTest, AFailureOfOursIsTheStatusOfAll) {
  StartBoth();
  supervisor_.Fail(kFailed);
  EXPECT_TRUE(supervisor_.stopping());
  Ended(0, {.status = kCutShort});
  Ended(1, {.status = kOk});
  EXPECT_THAT(supervisor_.exit_status(), Optional(static_cast<int>(kFailed)));
}

}  // namespace
}  // namespace gemmd::server
