// Which programs a GPU's copy engine gets beside the others, and what becomes of them.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engine/scheduling/run.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using kernels::CopyOp;
using kernels::MemoryKind;
using kernels::Op;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 1 << 20;
constexpr int kPrograms = 0, kTransfers = 1;  // streams, as a device opens them

class TransfersTest : public StateTest {
 protected:
  explicit TransfersTest(const std::string& gpu_uuid = "GPU-fake")
      : StateTest({.max_buffer_bytes = 1 << 30}, gpu_uuid), session_(Open(*red_)) {
    host_ = AddBuffer(*session_, kBytes, 0, MemoryKind::kHostShared);
    a_ = AddBuffer(*session_, kBytes);
    b_ = AddBuffer(*session_, kBytes);
  }

  struct Part {
    Handle from, to;
    int64_t bytes = kBytes;
  };
  void Run(const std::vector<Part>& parts, std::shared_ptr<Chain> chain = nullptr) {
    SlotTable slots(*session_);
    std::vector<Op> ops;
    const auto tensor = [&](const Handle& buffer, int64_t bytes) {
      kernels::TensorRef tensor;
      tensor.slot = *slots.Resolve(buffer);
      tensor.dtype = kernels::DType::kI8;
      tensor.shape = kernels::MakeDims({bytes});
      tensor.strides = kernels::MakeDims({1});
      return tensor;
    };
    for (const Part& part : parts) {
      ops.emplace_back(CopyOp{tensor(part.from, part.bytes), tensor(part.to, part.bytes)});
    }
    auto run =
        CompileRun(*state_->sessions().Use(*red_, ToBytes(session_->handle())), ops, slots, {});
    ASSERT_TRUE(run.ok()) << run.status();
    run->chain = std::move(chain);
    server::Run(*std::move(run), [this](std::shared_ptr<const Outcome> outcome, bool) {
      answers_.push_back(outcome->result.status);
    });
  }
  DeviceStats stats() { return state_->devices()[0]->stats(); }

  std::shared_ptr<Session> session_;
  Handle host_, a_, b_;
  std::vector<absl::Status> answers_;
};

class TransfersOfACpuTest : public TransfersTest {
 protected:
  TransfersOfACpuTest() : TransfersTest("") {}
};

TEST_F(TransfersTest, CopiesBetweenTheDeviceAndTheHostGoBeside) {
  Run({{a_, b_}});
  Run({{host_, a_}});
  Run({{a_, host_}});
  EXPECT_THAT(device_.streams(), ElementsAre(kPrograms, kTransfers, kTransfers));
  EXPECT_EQ(stats().launched, 3);
  EXPECT_DOUBLE_EQ(stats().queued_seconds, 3e-3);
  device_.CompleteAll();
  EXPECT_THAT(answers_, ElementsAre(absl::OkStatus(), absl::OkStatus(), absl::OkStatus()));
  EXPECT_EQ(stats().completed, 3);
  EXPECT_DOUBLE_EQ(stats().busy_seconds, 1e-3);
  EXPECT_DOUBLE_EQ(stats().transfer_seconds, 2e-3);
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("gemmd_device_busy_seconds_total{device=\"fake:0\"} 0.001\n"));
  EXPECT_THAT(text, HasSubstr("gemmd_device_transfer_seconds_total{device=\"fake:0\"} 0.002\n"));
}

TEST_F(TransfersTest, WhatDoesMoreOrKeepsAnOrderOrIsSmallDoesNot) {
  const auto ran_on = [&] {
    EXPECT_EQ(device_.pending(), 1);
    const int stream = device_.streams().front();
    device_.CompleteAll();
    return stream;
  };
  Run({{host_, a_}, {a_, b_}});
  EXPECT_EQ(ran_on(), kPrograms);
  Run({{host_, a_}}, std::make_shared<Chain>());
  EXPECT_EQ(ran_on(), kPrograms);
  Run({{host_, a_, kBytes - 1}});
  EXPECT_EQ(ran_on(), kPrograms);
  Run({{host_, a_, kBytes / 2}, {b_, host_, kBytes / 2}});
  EXPECT_EQ(ran_on(), kTransfers);
}

TEST_F(TransfersOfACpuTest, HaveNoLaneOfTheirOwn) {
  Run({{host_, a_}});
  EXPECT_THAT(device_.streams(), ElementsAre(kPrograms));
  device_.CompleteAll();
  EXPECT_DOUBLE_EQ(stats().busy_seconds, 1e-3);
  EXPECT_THAT(metrics_.Text(), ::testing::Not(HasSubstr("gemmd_device_transfer_seconds_total{")));
}

TEST_F(TransfersTest, TheyWaitForEachOtherAndNotForPrograms) {
  for (int i = 0; i < 4; ++i) Run({{a_, b_}});
  for (int i = 0; i < 5; ++i) Run({{host_, a_}});
  // Look-ahead of 2 ms, programs of 1 ms.
  EXPECT_THAT(device_.streams(), ElementsAre(kPrograms, kPrograms, kTransfers, kTransfers));
  EXPECT_EQ(stats().queued, 5);
  EXPECT_THAT(metrics_.Text(), HasSubstr("gemmd_queued_transfers{device=\"fake:0\"} 3\n"));
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("gemmd_queue_depth{device=\"fake:0\",priority=\"normal\"} 2\n"));
  device_.CompleteAll();
  EXPECT_EQ(answers_.size(), 9u);
}

TEST_F(TransfersTest, ATraceShowsThemOnATrackOfTheirOwn) {
  auto recording = state_->timeline().Begin(clock_.Now());
  Run({{a_, b_}});
  Run({{host_, a_}});
  while (device_.pending() > 0) {
    kernels::LaunchResult result;
    result.started = clock_.Now();
    result.device_seconds = 1e-3;
    std::move(device_.TakeOne().done)(std::move(result));
  }
  std::vector<std::string> ran_on;
  recording->Take(1000, [&](const TimelineEvent& event) {
    if (event.kind == TimelineEvent::Kind::kDevice) ran_on.emplace_back(event.device);
  });
  EXPECT_THAT(ran_on, ElementsAre("fake:0", "fake:0 transfers"));
}

TEST_F(TransfersTest, ASessionsEndCancelsWhatWaits) {
  for (int i = 0; i < 5; ++i) Run({{host_, a_}});
  state_->sessions().End(*session_, EndCause::kClosed);
  ASSERT_EQ(answers_.size(), 3u);
  for (const absl::Status& status : answers_) EXPECT_TRUE(absl::IsCancelled(status)) << status;
  device_.CompleteAll();
  ASSERT_EQ(answers_.size(), 5u);
  EXPECT_TRUE(answers_.back().ok());
}

TEST_F(TransfersTest, AStopAnswersWhatWaitsAndAwaitsTheRest) {
  for (int i = 0; i < 5; ++i) Run({{host_, a_}});
  state_->devices()[0]->Stop();
  ASSERT_EQ(answers_.size(), 5u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(absl::IsUnavailable(answers_[i])) << answers_[i];
  for (int i = 3; i < 5; ++i) EXPECT_TRUE(answers_[i].ok()) << answers_[i];
}

}  // namespace
}  // namespace gemmd::server
