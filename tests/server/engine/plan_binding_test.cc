// Plans of many buffers: what a session remembers of their runs, and what makes it forget.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/reason.h"
#include "server/engine/scheduling/run.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPairs = 10;
constexpr int64_t kBytes = 1024;  // of each buffer

// Copies from_[i] to to_[i]: slots 2i and 2i + 1.
class PlanBindingTest : public StateTest {
 protected:
  PlanBindingTest() {
    session_ = Open(*red_);
    SlotTable slots(*session_);
    std::vector<kernels::Op> ops;
    for (int i = 0; i < kPairs; ++i) {
      from_.push_back(AddBuffer(*session_, kBytes));
      to_.push_back(AddBuffer(*session_, kBytes));
      ops.push_back(kernels::CopyOp{View(slots, from_[i]), View(slots, to_[i])});
    }
    plan_ = *CompilePlan(*session_, ops, slots, {}, "copies");
    plan_handle_ = *session_->AddPlan(plan_);
  }

  static kernels::TensorRef View(SlotTable& slots, const Handle& handle) {
    kernels::TensorRef tensor;
    tensor.slot = *slots.Resolve(handle);
    tensor.shape = kernels::MakeDims({8});
    tensor.strides = kernels::MakeDims({1});
    return tensor;
  }
  absl::StatusOr<RunRequest> Bind(const std::vector<Rebinding>& rebind = {}) {
    return BindPlan(*state_->sessions().Use(*red_, ToBytes(session_->handle())), plan_, rebind, {});
  }
  absl::StatusCode CodeOf(const std::vector<Rebinding>& rebind = {}) {
    return Bind(rebind).status().code();
  }
  std::shared_ptr<const BoundBuffers> Bound(const std::vector<Rebinding>& rebind = {}) {
    return Bind(rebind)->buffers;
  }
  void Publish(const Handle& handle) {
    ASSERT_TRUE(state_->published().Publish(*red_, "w", *session_->FindBuffer(handle)).ok());
  }

  std::shared_ptr<Session> session_;
  std::vector<Handle> from_, to_;
  std::shared_ptr<const Plan> plan_;
  Handle plan_handle_;
};

TEST_F(PlanBindingTest, ASecondRunOnTheSameBuffersFindsThemBound) {
  const auto first = Bound();
  EXPECT_EQ(Bound(), first);
  ASSERT_EQ(first->leases.size(), 2 * kPairs);
  for (int i = 0; i < kPairs; ++i) {
    EXPECT_EQ(first->leases[2 * i], session_->FindBuffer(from_[i])->buffer);
    EXPECT_EQ(first->addresses[2 * i + 1], first->leases[2 * i + 1]->memory().address());
    EXPECT_EQ(first->written[i], first->leases[2 * i + 1].get());
  }
}

TEST_F(PlanBindingTest, EachRebindingIsBoundByItself) {
  const Handle other = AddBuffer(*session_);
  const auto own = Bound(), changed = Bound({{to_[3], other}});
  EXPECT_EQ(own->leases[7], session_->FindBuffer(to_[3])->buffer);
  EXPECT_EQ(changed->leases[7], session_->FindBuffer(other)->buffer);
  EXPECT_EQ(changed->leases[6], own->leases[6]);
  EXPECT_EQ(Bound({{to_[3], other}}), changed);
  EXPECT_EQ(Bound(), own);
}

TEST_F(PlanBindingTest, TheFirstOfTwoRebindingsOfABufferCounts) {
  const Handle first = AddBuffer(*session_), second = AddBuffer(*session_);
  EXPECT_EQ(Bound({{to_[0], first}, {to_[0], second}})->leases[1],
            session_->FindBuffer(first)->buffer);
}

TEST_F(PlanBindingTest, ADeletedBufferIsRefusedAfterARunOnItAndFreedAtOnce) {
  Bound();
  const int64_t before = used_bytes();
  EXPECT_EQ(*session_->DeleteBuffers({&from_[4], 1}), kBytes);
  EXPECT_EQ(used_bytes(), before - kBytes);
  const absl::Status refused = Bind().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(refused), "BUFFER_GONE");
  EXPECT_THAT(std::string(refused.message()), HasSubstr(Redacted(from_[4])));
  EXPECT_TRUE(Bind({{from_[4], AddBuffer(*session_)}}).ok());
}

TEST_F(PlanBindingTest, ABufferDeletedUnderARunIsFreedAfterIt) {
  Bound();
  server::Run(*Bind(), [](std::shared_ptr<const Outcome>, bool) {});
  const int64_t before = used_bytes();
  EXPECT_EQ(*session_->DeleteBuffers({&to_[0], 1}), 0);
  EXPECT_EQ(used_bytes(), before);
  device_.CompleteAll();
  EXPECT_EQ(used_bytes(), before - kBytes);
}

TEST_F(PlanBindingTest, DeletingAReplacementLeavesOtherRunsBound) {
  const Handle other = AddBuffer(*session_), bystander = AddBuffer(*session_);
  const auto own = Bound();
  Bound({{to_[3], other}});
  ASSERT_TRUE(session_->DeleteBuffers({&bystander, 1}).ok());
  ASSERT_TRUE(session_->DeleteBuffers({&other, 1}).ok());
  EXPECT_EQ(CodeOf({{to_[3], other}}), absl::StatusCode::kNotFound);
  EXPECT_EQ(Bound(), own);
}

TEST_F(PlanBindingTest, DeletingWhatIsReplacedLeavesTheRunBound) {
  const Handle other = AddBuffer(*session_);
  const auto changed = Bound({{to_[3], other}});
  ASSERT_TRUE(session_->DeleteBuffers({&to_[3], 1}).ok());
  EXPECT_EQ(Bound({{to_[3], other}}), changed);
  EXPECT_EQ(CodeOf(), absl::StatusCode::kNotFound);
}

TEST_F(PlanBindingTest, AHandleOfABufferThatAnotherHandleKeepsIsRefusedOnceDeleted) {
  BufferRef found = *session_->FindBuffer(from_[0]);
  found.found = true;
  const Handle second = *session_->AddBuffer(found);
  Bound({{from_[0], second}});
  ASSERT_TRUE(session_->DeleteBuffers({&second, 1}).ok());
  EXPECT_EQ(CodeOf({{from_[0], second}}), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Bind().ok());
}

TEST_F(PlanBindingTest, ABufferPublishedSinceIsRefusedWhereItIsWrittenAndReadElsewhere) {
  const auto own = Bound();
  Publish(from_[2]);
  EXPECT_EQ(Bound(), own);
  ASSERT_TRUE(state_->published().Unpublish(*red_, "w").ok());
  Publish(to_[2]);
  const absl::Status refused = Bind().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused), "READ_ONLY");
  EXPECT_THAT(std::string(refused.message()), HasSubstr(Redacted(to_[2])));
}

TEST_F(PlanBindingTest, OfSeveralAliasesTheOneWithTheFirstSlotIsNamed) {
  // Slots 5 and 18 share a buffer, and so do 3 and 19.
  const std::vector<Rebinding> rebind = {{from_[9], to_[2]}, {to_[9], to_[1]}};
  const absl::Status refused = Bind(rebind).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("buffers ", Redacted(to_[1]), "... and ", Redacted(to_[9]))));
  // A buffer that is only read may stand in several places.
  EXPECT_TRUE(Bind({{from_[8], from_[0]}, {from_[9], from_[0]}}).ok());
  // Read in two places and written in the last: the first place and the last.
  const absl::Status last = Bind({{from_[8], from_[0]}, {to_[9], from_[0]}}).status();
  EXPECT_THAT(std::string(last.message()), HasSubstr(absl::StrCat("buffers ", Redacted(from_[0]),
                                                                  "... and ", Redacted(to_[9]))));
}

TEST_F(PlanBindingTest, TheFirstSlotThatDoesNotFitIsToldOf) {
  const Handle small = AddBuffer(*session_, 8), gone = NewHandle();
  EXPECT_EQ(CodeOf({{to_[1], small}, {to_[2], gone}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf({{to_[2], small}, {to_[1], gone}}), absl::StatusCode::kNotFound);
}

TEST_F(PlanBindingTest, ADeletedPlanLetsGoOfItsBuffers) {
  Bound();
  ASSERT_TRUE(session_->DeletePlan(plan_handle_).ok());
  EXPECT_EQ(session_->FindBuffer(from_[0])->buffer.use_count(), 2);  // the session's and this one
}

TEST_F(PlanBindingTest, ASessionThatEndsFreesWhatItsPlansWereBoundTo) {
  Bound();
  Session::Freed freed;
  state_->sessions().End(*session_, EndCause::kClosed, [&](Session::Freed all) { freed = all; });
  EXPECT_EQ(freed.buffers, 2 * kPairs);
  EXPECT_EQ(freed.bytes, 2 * kPairs * kBytes);
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(PlanBindingTest, AnotherDevicesBufferIsAskedForEachTime) {
  const Handle far = AddBuffer(*session_, kBytes, 1);
  SlotTable slots(*session_);
  std::vector<kernels::Op> ops;
  for (int i = 0; i < kPairs; ++i) {
    ops.push_back(kernels::CopyOp{View(slots, i == 0 ? far : from_[i]), View(slots, to_[i])});
  }
  plan_ = *CompilePlan(*session_, ops, slots, {}, "from afar");
  EXPECT_EQ(Bind()->peers.size(), 1);
  EXPECT_EQ(Bind()->peers.size(), 1);
  device_.CannotReach(absl::UnimplementedError("no link"));
  EXPECT_EQ(CodeOf(), absl::StatusCode::kUnimplemented);
}

TEST_F(PlanBindingTest, WhatWasDeletedMeanwhileIsNotRemembered) {
  const Session::FoundBuffers found = session_->FindBuffers({});
  auto buffers = std::make_shared<BoundBuffers>();
  ASSERT_TRUE(session_->DeleteBuffers({&to_[0], 1}).ok());
  session_->RememberBinding({.plan = plan_, .buffers = buffers}, found);
  EXPECT_EQ(session_->FindBinding(plan_, {}), nullptr);
  session_->RememberBinding({.plan = plan_, .buffers = buffers}, session_->FindBuffers({}));
  EXPECT_EQ(session_->FindBinding(plan_, {}), buffers);
}

TEST_F(PlanBindingTest, RunsBesideDeletionsHoldNothingThatIsDeleted) {
  const int64_t before = used_bytes();
  constexpr int kThreads = 3, kTimes = 200;
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTimes; ++i) {
        const Handle mine = AddBuffer(*session_, kBytes);
        const std::vector<Rebinding> rebind = {{to_[t], mine}};
        const auto run = Bind(rebind);
        ASSERT_TRUE(run.ok()) << run.status();
        EXPECT_TRUE(Bind().ok());
        ASSERT_TRUE(session_->DeleteBuffers({&mine, 1}).ok());
        refused += Bind(rebind).status().code() == absl::StatusCode::kNotFound;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, kThreads * kTimes);
  EXPECT_EQ(used_bytes(), before);
}

TEST_F(PlanBindingTest, TheLongestUnusedOfManyBindingsGivesWay) {
  RecentBindings recent;
  const auto add = [&](const Handle& to) {
    return recent.Add(
        {.plan = plan_, .rebind = {{to_[0], to}}, .buffers = std::make_shared<BoundBuffers>()});
  };
  std::vector<std::vector<Rebinding>> changes;
  for (size_t i = 0; i < RecentBindings::kMost; ++i) {
    changes.push_back({{to_[0], NewHandle()}});
    EXPECT_TRUE(add(changes[i][0].to).empty());
  }
  EXPECT_NE(recent.Find(plan_, changes[0]), nullptr);
  EXPECT_EQ(add(NewHandle()).size(), 1);
  EXPECT_EQ(recent.size(), RecentBindings::kMost);
  EXPECT_NE(recent.Find(plan_, changes[0]), nullptr);
  EXPECT_EQ(recent.Find(plan_, changes[1]), nullptr);
}

TEST_F(PlanBindingTest, BindingsOfPlansThatAreGoneGiveWayFirst) {
  RecentBindings recent;
  auto gone = std::make_shared<const Plan>();
  recent.Add({.plan = plan_, .buffers = std::make_shared<BoundBuffers>()});
  for (size_t i = 1; i < RecentBindings::kMost; ++i) {
    recent.Add({.plan = gone, .buffers = std::make_shared<BoundBuffers>()});
  }
  gone.reset();
  EXPECT_EQ(recent.Add({.plan = std::make_shared<const Plan>()}).size(), RecentBindings::kMost - 1);
  EXPECT_NE(recent.Find(plan_, {}), nullptr);
}

}  // namespace
}  // namespace gemmd::server
