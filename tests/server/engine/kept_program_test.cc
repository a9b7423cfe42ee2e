// Plans whose kernels can be measured: compiled anew when the device chooses otherwise.

#include "server/engine/sessions/kept_program.h"

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/engine/scheduling/run.h"
#include "server/engine/sessions/host_bytes.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

class KeptProgramTest : public StateTest {
 protected:
  static Limits WithRoomFor(int64_t bytes) {
    Limits limits;
    limits.max_host_bytes = bytes;
    return limits;
  }
  explicit KeptProgramTest(Limits limits = {}) : StateTest(std::move(limits)) {
    device_.tunable = {{.shape = {8, 64, 256}, .calls = 1}};
    session_ = Open(*red_);
  }
  absl::StatusOr<std::shared_ptr<const Plan>> MakePlan() {
    SlotTable slots(*session_);
    const Handle from = AddBuffer(*session_), to = AddBuffer(*session_);
    const auto view = [&](const Handle& handle) {
      return kernels::TensorRef{.slot = *slots.Resolve(handle),
                                .shape = kernels::MakeDims({8}),
                                .strides = kernels::MakeDims({1})};
    };
    const std::vector<kernels::Op> ops = {kernels::CopyOp{view(from), view(to)}};
    return CompilePlan(*session_, ops, slots, {}, "plan");
  }
  Device& device() { return *state_->devices()[0]; }
  static std::string_view KernelOf(const Plan& plan) {
    return plan.program.Get()->steps()[0].choice.kernel;
  }

  std::shared_ptr<Session> session_;
};

TEST_F(KeptProgramTest, APlanRunsTheKernelsThatAreChosenNow) {
  const auto plan = *MakePlan();
  const auto running = plan->program.Get();
  EXPECT_EQ(KernelOf(*plan), "fake_f32");
  device_.kernel = "fake_fast";
  device().RenewPrograms();
  EXPECT_EQ(KernelOf(*plan), "fake_fast");
  EXPECT_EQ(running->steps()[0].choice.kernel, "fake_f32");  // a run under way keeps its own
}

TEST_F(KeptProgramTest, WithTheSameKernelsTheProgramStays) {
  const auto plan = *MakePlan();
  const auto before = plan->program.Get();
  device().RenewPrograms();
  EXPECT_EQ(plan->program.Get(), before);
}

TEST_F(KeptProgramTest, WhatCannotBeMeasuredIsNotCompiledAnew) {
  device_.tunable.clear();
  const auto plan = *MakePlan();
  device_.kernel = "fake_fast";
  device().RenewPrograms();
  EXPECT_EQ(KernelOf(*plan), "fake_f32");
  EXPECT_EQ(device().renewable().size(), 0);
}

TEST_F(KeptProgramTest, PlansThatAreGoneAreForgotten) {
  const int64_t before = red_->usage().host_bytes;
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(MakePlan().ok());
  EXPECT_LT(device().renewable().size(), 200);
  EXPECT_EQ(red_->usage().host_bytes, before);
}

class FullTenantTest : public KeptProgramTest {
 protected:
  // For the plan, its compiled op and its slots, and not for a second program of it.
  FullTenantTest()
      : KeptProgramTest(
            WithRoomFor(kOpBytes + 2 * kSlotBytes + static_cast<int64_t>(sizeof(kernels::Op)))) {}
};

TEST_F(FullTenantTest, WithoutRoomForTheNewProgramTheOldOneStays) {
  const auto plan = MakePlan();
  ASSERT_TRUE(plan.ok()) << plan.status();
  device_.kernel = "fake_fast";
  device().RenewPrograms();
  EXPECT_EQ(KernelOf(**plan), "fake_f32");
}

}  // namespace
}  // namespace gemmd::server
