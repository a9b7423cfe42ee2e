#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include "absl/synchronization/notification.h"
#include "bench/load/generator.h"
#include "bench/load/percentiles.h"

namespace gemmd::bench {
namespace {

TEST(LatenciesTest, PercentilesAreNearestRank) {
  Latencies latencies;
  for (int i = 1000; i >= 1; --i) latencies.Add(i);
  EXPECT_EQ(latencies.Percentile(50), 500);
  EXPECT_EQ(latencies.Percentile(99), 990);
  EXPECT_EQ(latencies.Percentile(99.9), 999);
  EXPECT_EQ(latencies.max(), 1000);
  EXPECT_EQ(latencies.Percentile(0), 1);
  EXPECT_EQ(latencies.mean(), 500.5);
}

TEST(LatenciesTest, MergeAndAddAfterAskingSortAgain) {
  Latencies a, b;
  a.Add(5);
  EXPECT_EQ(a.max(), 5);
  b.Add(9);
  a.Merge(b);
  a.Add(1);
  EXPECT_EQ(a.max(), 9);
  EXPECT_EQ(a.Percentile(1), 1);
  EXPECT_EQ(Latencies().Percentile(50), 0);
}

TEST(StatisticsTest, MedianAndSpread) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Median({}), 0);
  EXPECT_DOUBLE_EQ(Spread({9, 10, 11}), 0.2);
  EXPECT_EQ(Spread({5}), 0);
}

TEST(ScheduleTest, EvenlySpacedByDefault) {
  Schedule schedule(100, false, 1);
  EXPECT_DOUBLE_EQ(schedule.Next(), 0);
  EXPECT_DOUBLE_EQ(schedule.Next(), 0.01);
  EXPECT_DOUBLE_EQ(schedule.Next(), 0.02);
}

TEST(ScheduleTest, PoissonHasTheRateAndTheSpreadOfItsGaps) {
  Schedule schedule(1000, true, 42);
  double last = schedule.Next(), sum = 0, sum2 = 0;
  EXPECT_EQ(last, 0);
  const int count = 20000;
  for (int i = 0; i < count; ++i) {
    const double due = schedule.Next();
    sum += due - last;
    sum2 += (due - last) * (due - last);
    last = due;
  }
  const double mean = sum / count;
  EXPECT_NEAR(mean, 1e-3, 3e-5);
  EXPECT_NEAR(std::sqrt(sum2 / count - mean * mean), mean,
              0.05 * mean);  // an exponential's deviation is its mean
}

TEST(LoadTest, ClosedLoopSendsExactlyTheRequestsAskedFor) {
  std::atomic<int> sent = 0;
  const LoadReport report =
      RunLoad({.concurrency = 3, .duration = absl::Seconds(60), .requests = 100}, [&](int) {
        ++sent;
        return absl::OkStatus();
      });
  EXPECT_EQ(sent, 100);
  EXPECT_EQ(report.latencies.count(), 100);
  EXPECT_EQ(report.errors, 0);
}

TEST(LoadTest, OpenLoopChargesAStallToWhatWasDueMeanwhile) {
  // 1000 a second for 0.1 s, and the first answer takes 50 ms: about 50 requests were due
  // meanwhile, and the one sent right behind the stall waited almost all of it. Counted from their
  // sending, none of them would show it.
  std::atomic<bool> first = true;
  const LoadReport report =
      RunLoad({.concurrency = 1, .duration = absl::Milliseconds(100), .rate = 1000}, [&](int) {
        if (first.exchange(false)) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return absl::OkStatus();
      });
  EXPECT_EQ(report.latencies.count(), 100);
  EXPECT_GT(report.latencies.Percentile(75), 0.010);
  EXPECT_GE(report.latencies.max(), 0.050);
  EXPECT_GE(report.max_late_seconds, 0.048);
  EXPECT_EQ(report.due, 100);
  EXPECT_EQ(report.unsent, 0);
}

TEST(LoadTest, EndsWhenDurationAndGraceAreOverAndTellsWhatWasNotSent) {
  // A thousand times what one worker can send.
  const LoadReport report = RunLoad({.concurrency = 1,
                                     .duration = absl::Milliseconds(100),
                                     .grace = absl::Seconds(2),
                                     .rate = 1e6},
                                    [](int) {
                                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                      return absl::OkStatus();
                                    });
  EXPECT_LT(report.seconds, 20);  // all of them would take 100 s
  EXPECT_EQ(report.due, 100'000);
  EXPECT_EQ(report.unsent, report.due - report.latencies.count());
  EXPECT_GT(report.unsent, 50'000);
  EXPECT_EQ(report.unanswered, 0);
}

TEST(LoadTest, PoissonTellsAboutHowManyWereNotSent) {
  const LoadReport report = RunLoad({.concurrency = 1,
                                     .duration = absl::Milliseconds(100),
                                     .grace = absl::Seconds(1),
                                     .rate = 1e6,
                                     .poisson = true},
                                    [](int) {
                                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                      return absl::OkStatus();
                                    });
  EXPECT_GT(report.unsent, 90'000);
  EXPECT_NEAR(static_cast<double>(report.due), 1e5, 5e3);
}

TEST(LoadTest, ARequestWithoutAnAnswerIsLeftBehindAndCounted) {
  struct Gate {
    absl::Notification open, left;
  };
  const auto gate = std::make_shared<Gate>();
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const LoadReport report = RunLoad(
      {.concurrency = 1, .duration = absl::Milliseconds(1), .grace = absl::Milliseconds(300)},
      [gate, calls](int) {
        if (calls->fetch_add(1) == 0) return absl::OkStatus();
        gate->open.WaitForNotification();
        gate->left.Notify();
        return absl::OkStatus();
      });
  // The second one is still there, unless the first took all of the duration.
  if (calls->load() == 2) {
    EXPECT_EQ(report.unanswered, 1);
    EXPECT_EQ(report.latencies.count(), 1);  // what the worker had seen before counts
    gate->open.Notify();
    gate->left.WaitForNotification();
  }
}

TEST(LoadTest, StopsAtTheFirstErrorAndReportsIt) {
  const LoadReport report = RunLoad({.concurrency = 2, .duration = absl::Seconds(60)},
                                    [](int) { return absl::InternalError("broken"); });
  EXPECT_GE(report.errors, 1);
  EXPECT_EQ(report.first_error.message(), "broken");
  EXPECT_EQ(report.latencies.count(), 0);
}

}  // namespace
}  // namespace gemmd::bench
