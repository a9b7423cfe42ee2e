#include "server/engine/scheduling/fair_queue.h"

#include <map>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/engine/fake_backend.h"

namespace gemmd::server {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1);

class FairQueueTest : public ::testing::Test {
 protected:
  std::shared_ptr<Job> Push(Tenant& tenant, uint64_t session, double seconds,
                            Priority priority = Priority::kNormal, absl::Time at = kStart) {
    auto job = std::make_shared<Job>();
    job->tenant = &tenant;
    job->session_key = session;
    job->estimate = seconds;
    job->priority = priority;
    job->accepted = at;
    queue_.Push(job);
    return job;
  }

  // Serves `rounds` jobs, each replaced by a like one, and returns seconds served by tenant.
  std::map<const Tenant*, double> Serve(int rounds, const std::map<Tenant*, double>& sizes) {
    std::map<const Tenant*, double> served;
    for (const auto& [tenant, seconds] : sizes) Push(*tenant, tenant->index(), seconds);
    for (int i = 0; i < rounds; ++i) {
      auto job = queue_.Pop(kStart);
      served[job->tenant] += job->estimate;
      Push(*job->tenant, job->session_key, job->estimate);
    }
    return served;
  }

  Tenant red_{0, {.name = "red"}};
  Tenant blue_{1, {.name = "blue"}};
  Tenant heavy_{2, {.name = "heavy", .weight = 3.0}};
  FairQueue queue_{absl::Milliseconds(100)};
};

TEST_F(FairQueueTest, GivesNothingWhenEmpty) { EXPECT_EQ(queue_.Pop(kStart), nullptr); }

TEST_F(FairQueueTest, KeepsOneSessionsJobsInOrder) {
  auto first = Push(red_, 1, 1.0), second = Push(red_, 1, 0.001), third = Push(red_, 1, 1.0);
  EXPECT_EQ(queue_.Pop(kStart), first);
  EXPECT_EQ(queue_.Pop(kStart), second);
  EXPECT_EQ(queue_.Pop(kStart), third);
}

TEST_F(FairQueueTest, EqualTenantsShareTimeWhateverTheirProgramsSizes) {
  const auto served = Serve(4000, {{&red_, 0.020}, {&blue_, 0.001}});
  EXPECT_NEAR(served.at(&red_) / served.at(&blue_), 1.0, 0.02);
}

TEST_F(FairQueueTest, WeightsDivideTime) {
  const auto served = Serve(4000, {{&red_, 0.002}, {&heavy_, 0.001}});
  EXPECT_NEAR(served.at(&heavy_) / served.at(&red_), 3.0, 0.05);
}

TEST_F(FairQueueTest, ManySessionsBuyATenantNothing) {
  std::map<const Tenant*, int> served;
  for (uint64_t session = 10; session < 20; ++session) {
    for (int i = 0; i < 50; ++i) Push(red_, session, 0.001);
  }
  for (int i = 0; i < 200; ++i) Push(blue_, 1, 0.001);
  for (int i = 0; i < 300; ++i) ++served[queue_.Pop(kStart)->tenant];
  EXPECT_EQ(served[&red_], 150);
  EXPECT_EQ(served[&blue_], 150);
}

TEST_F(FairQueueTest, SessionsOfATenantShareItsTime) {
  for (int i = 0; i < 100; ++i) Push(red_, 1, 0.010);
  for (int i = 0; i < 1000; ++i) Push(red_, 2, 0.001);
  std::map<uint64_t, double> served;
  for (int i = 0; i < 500; ++i) {
    auto job = queue_.Pop(kStart);
    served[job->session_key] += job->estimate;
  }
  EXPECT_NEAR(served[1] / served[2], 1.0, 0.05);
}

TEST_F(FairQueueTest, SmallProgramsOfASessionGoTogetherAndStillShareTime) {
  for (int i = 0; i < 1000; ++i) {
    for (uint64_t session : {1, 2, 3}) Push(red_, session, 20e-6);
  }
  std::map<uint64_t, int> served;
  uint64_t last = 0;
  int turns = 0;
  for (int i = 0; i < 1500; ++i) {
    const uint64_t session = queue_.Pop(kStart)->session_key;
    turns += session != last;
    last = session;
    ++served[session];
  }
  EXPECT_LE(turns, 1500 / 20);
  for (const auto& [session, count] : served) EXPECT_NEAR(count, 500, 30) << session;
}

TEST_F(FairQueueTest, LargeProgramsOfSessionsAlternate) {
  for (int i = 0; i < 10; ++i) {
    for (uint64_t session : {1, 2}) Push(red_, session, 0.001);
  }
  uint64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    const uint64_t session = queue_.Pop(kStart)->session_key;
    EXPECT_NE(session, last);
    last = session;
  }
}

TEST_F(FairQueueTest, TimeNotUsedIsNotSavedUp) {
  for (int i = 0; i < 100; ++i) Push(red_, 1, 0.010);
  for (int i = 0; i < 50; ++i) queue_.Pop(kStart);
  // Blue was idle for half a second of red's time; it must not now have half a second to itself.
  for (int i = 0; i < 100; ++i) Push(blue_, 2, 0.010);
  int blue = 0;
  for (int i = 0; i < 20; ++i) blue += queue_.Pop(kStart)->tenant == &blue_;
  EXPECT_NEAR(blue, 10, 1);
}

TEST_F(FairQueueTest, TrueTimesCorrectWrongEstimates) {
  // Red's programs take ten times what they are estimated at.
  std::map<const Tenant*, double> served;
  Push(red_, 1, 0.001);
  Push(blue_, 2, 0.001);
  for (int i = 0; i < 2000; ++i) {
    auto job = queue_.Pop(kStart);
    const double truth = job->tenant == &red_ ? 0.010 : 0.001;
    served[job->tenant] += truth;
    queue_.Correct(*job->tenant, job->session_key, truth - job->estimate);
    Push(*const_cast<Tenant*>(job->tenant), job->session_key, 0.001);
  }
  EXPECT_NEAR(served[&red_] / served[&blue_], 1.0, 0.05);
}

TEST_F(FairQueueTest, HigherPriorityGoesFirstWithinATenant) {
  auto low = Push(red_, 1, 0.001, Priority::kLow);
  auto normal = Push(red_, 2, 0.001);
  auto high = Push(red_, 3, 0.001, Priority::kHigh);
  EXPECT_EQ(queue_.Pop(kStart), high);
  EXPECT_EQ(queue_.Pop(kStart), normal);
  EXPECT_EQ(queue_.Pop(kStart), low);
}

TEST_F(FairQueueTest, PriorityBuysNoTimeOfAnotherTenant) {
  for (int i = 0; i < 100; ++i) {
    Push(red_, 1, 0.001, Priority::kHigh);
    Push(blue_, 2, 0.001, Priority::kLow);
  }
  int red = 0;
  for (int i = 0; i < 100; ++i) red += queue_.Pop(kStart)->tenant == &red_;
  EXPECT_EQ(red, 50);
}

TEST_F(FairQueueTest, WaitingRaisesPriority) {
  auto low = Push(red_, 1, 0.001, Priority::kLow, kStart - absl::Milliseconds(301));
  auto high = Push(red_, 2, 0.001, Priority::kHigh);
  EXPECT_EQ(queue_.Pop(kStart), low);
  EXPECT_EQ(queue_.Pop(kStart), high);
}

TEST_F(FairQueueTest, RemoveTakesOutOneJob) {
  auto first = Push(red_, 1, 1.0), second = Push(red_, 1, 2.0);
  EXPECT_TRUE(queue_.Remove(*first));
  EXPECT_FALSE(queue_.Remove(*first));
  EXPECT_EQ(queue_.size(), 1);
  EXPECT_DOUBLE_EQ(queue_.queued_seconds(), 2.0);
  EXPECT_EQ(queue_.Pop(kStart), second);
  EXPECT_FALSE(queue_.Remove(*second));
}

TEST_F(FairQueueTest, RemoveSessionTakesOutAllOfIt) {
  Push(red_, 1, 1.0);
  Push(red_, 1, 1.0, Priority::kHigh);
  auto other = Push(red_, 2, 1.0);
  EXPECT_THAT(queue_.RemoveSession(1), SizeIs(2));
  EXPECT_THAT(queue_.RemoveSession(1), IsEmpty());
  EXPECT_EQ(queue_.Pop(kStart), other);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(FairQueueTest, CountsByPriorityAndTime) {
  Push(red_, 1, 0.5, Priority::kHigh);
  Push(red_, 1, 0.25);
  EXPECT_EQ(queue_.size(Priority::kHigh), 1);
  EXPECT_EQ(queue_.size(Priority::kNormal), 1);
  EXPECT_EQ(queue_.size(Priority::kLow), 0);
  EXPECT_DOUBLE_EQ(queue_.queued_seconds(), 0.75);
  queue_.Pop(kStart);
  queue_.Pop(kStart);
  EXPECT_EQ(queue_.queued_seconds(), 0.0);
}

TEST_F(FairQueueTest, WaitIsBoundedByOwnShareAndByAllThatIsQueued) {
  EXPECT_EQ(queue_.WaitSeconds(red_), 0.0);
  Push(blue_, 2, 1.0);
  EXPECT_DOUBLE_EQ(queue_.WaitSeconds(red_), 0.0);  // red would be served at once by its share
  Push(red_, 1, 0.25);
  EXPECT_DOUBLE_EQ(queue_.WaitSeconds(red_), 0.5);  // its own work at half the device
  Push(red_, 1, 4.0);
  EXPECT_DOUBLE_EQ(queue_.WaitSeconds(red_), 5.25);  // no more than all there is
}

}  // namespace
}  // namespace gemmd::server
