// ArmedTest: a session with a plan to arm and its caller, on a device whose programs end when the
// test says so.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "server/engine/armed/armed_plans.h"
#include "server/engine/reason.h"
#include "tests/server/engine/armed_caller.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {

class ArmedTest : public StateTest {
 protected:
  static constexpr int64_t kBytes = 64;

  explicit ArmedTest(Limits limits = {}, bool signals = false, int slots = 0) : StateTest(limits) {
    device_.signals = signals;
    session_ = Open(*red_);
    from_ = AddBuffer(*session_, kBytes);
    to_ = AddBuffer(*session_, kBytes);
    SlotTable table(*session_);
    const kernels::Op copy = kernels::CopyOp{View(table, from_), View(table, to_)};
    plan_ = *session_->AddPlan(*CompilePlan(*session_, {&copy, 1}, table, {}, "copy"));
    region_ = *state_->armed().RegionOf(*session_, slots);
    caller_ = std::make_unique<ArmedCaller>(region_->memfd(), region_->wake_fd(), region_->slots());
  }
  ~ArmedTest() override {
    device_.CompleteAll();
    session_.reset();
    region_.reset();
    state_.reset();
  }

  static kernels::TensorRef View(SlotTable& slots, const Handle& handle) {
    kernels::TensorRef tensor;
    tensor.slot = *slots.Resolve(handle);
    tensor.shape = kernels::MakeDims({8});
    tensor.strides = kernels::MakeDims({1});
    return tensor;
  }
  absl::StatusOr<ArmedRegion::Armed> Arm(const ArmOptions& options = {},
                                         std::vector<Rebinding> rebind = {}) {
    return region_->Arm(*session_->Use(clock_.Now()), plan_, std::move(rebind), options);
  }
  int Slot(const ArmOptions& options = {}) { return Arm(options)->slot; }
  // The poller submits in its own time.
  bool Launched(int programs) {
    return Comes([&] { return device_.pending() == programs; });
  }
  static bool Comes(const std::function<bool()>& condition) {
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (!condition()) {
      if (absl::Now() > end) return false;
      absl::SleepFor(absl::Microseconds(200));
    }
    return true;
  }
  // The same, where the poller may still be submitting: programs end as they are launched.
  bool ComesAsProgramsEnd(const std::function<bool()>& condition) {
    return Comes([&] {
      device_.CompleteAll();
      return condition();
    });
  }
  // A ring that is answered without having run: the fill with NaN is completed, if there is one.
  gemmd_armed_report Refused(int slot) {
    EXPECT_TRUE(ComesAsProgramsEnd([&] { return caller_->done(slot).load() != 0; }));
    EXPECT_EQ(caller_->Wait(slot), GEMMD_ARMED_FAILED);
    return caller_->Report(slot);
  }
  double poll_seconds() { return metrics_.ArmedPollSeconds().Value(); }

  std::shared_ptr<Session> session_;
  Handle from_, to_, plan_;
  std::shared_ptr<ArmedRegion> region_;
  std::unique_ptr<ArmedCaller> caller_;
};

}  // namespace gemmd::server
