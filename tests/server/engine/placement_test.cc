// Programs that name buffers of two devices: where they run, what is refused, what plans of them
// may be bound to.

#include "server/engine/scheduling/placement.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/fault.h"
#include "server/engine/reason.h"
#include "server/engine/scheduling/split_program.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using kernels::CopyOp;
using kernels::FillOp;
using kernels::MatmulOp;
using kernels::Op;
using kernels::ReadOp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PlacementTest : public StateTest {
 protected:
  PlacementTest()
      : session_(Open(*red_)),
        near_(AddBuffer(*session_)),
        near_too_(AddBuffer(*session_)),
        far_(AddBuffer(*session_, 1024, 1)),
        far_too_(AddBuffer(*session_, 1024, 1)) {}

  SessionUse Use() { return *state_->sessions().Use(*red_, ToBytes(session_->handle())); }
  Device* device(int index) { return state_->devices()[index].get(); }

  // Four by four, at the beginning of a buffer.
  kernels::TensorRef At(const Handle& handle) {
    kernels::TensorRef tensor;
    tensor.slot = *slots().Resolve(handle);
    tensor.shape = kernels::MakeDims({4, 4});
    tensor.strides = kernels::MakeDims({4, 1});
    return tensor;
  }
  MatmulOp Matmul(const Handle& a, const Handle& b, const Handle& d) {
    return {.a = {.values = At(a)}, .b = {.values = At(b)}, .d = At(d)};
  }
  SlotTable& slots() {
    if (!slots_) slots_.emplace(*session_);
    return *slots_;
  }
  // Of ops whose slots are those of `slots()`, which begins anew.
  absl::StatusOr<RunRequest> Compile(const std::vector<Op>& ops) {
    auto run = CompileRun(Use(), ops, slots(), {});
    slots_.reset();
    return run;
  }
  absl::StatusOr<std::shared_ptr<const Plan>> MakePlan(const std::vector<Op>& ops) {
    auto plan = CompilePlan(*session_, ops, slots(), {}, "");
    slots_.reset();
    return plan;
  }

  std::shared_ptr<Session> session_;
  Handle near_, near_too_, far_, far_too_;
  std::optional<SlotTable> slots_;
};

TEST_F(PlacementTest, AProgramRunsWhereItWrites) {
  const auto here = Compile({CopyOp{At(near_), At(near_too_)}});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_EQ(here->device, device(0));
  EXPECT_THAT(here->peers, IsEmpty());

  // Its session is at home on the other device, and so is what it reads.
  const auto there = Compile({CopyOp{At(near_), At(far_)}});
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(there->device, device(1));
  EXPECT_THAT(there->peers, ElementsAre(&device(0)->backend()));

  const auto reads = Compile({ReadOp{At(far_), 0}});
  ASSERT_TRUE(reads.ok()) << reads.status();
  EXPECT_EQ(reads->device, device(1));
}

TEST_F(PlacementTest, CopiesReadAnotherDevicesBuffersAndEachDeviceIsASourceOnce) {
  const auto run = Compile({CopyOp{At(far_), At(near_)}, CopyOp{At(far_too_), At(near_too_)},
                            Matmul(near_, near_, near_too_)});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->device, device(0));
  EXPECT_THAT(run->peers, ElementsAre(&device(1)->backend()));
}

TEST_F(PlacementTest, AnOpThatComputesOnAnotherDevicesBufferIsRefusedWithTheRemedy) {
  const auto refused = Compile({FillOp{At(near_), 1}, Matmul(near_too_, far_, near_)}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refused), "OTHER_DEVICE");
  EXPECT_EQ(std::string(refused.message()),
            "op 1 (matmul) reads a buffer on fake:1, and the program runs on fake:0; a program "
            "runs on one device: put a Copy op before it, whose dst is a buffer on fake:0");
  EXPECT_TRUE(Compile({CopyOp{At(far_), At(near_too_)}, Matmul(near_too_, near_too_, near_)}).ok());
}

TEST_F(PlacementTest, ABufferThatIsCopiedMayNotBeComputedOnAsWell) {
  EXPECT_EQ(
      Compile({CopyOp{At(far_), At(near_too_)}, Matmul(near_too_, far_, near_)}).status().code(),
      absl::StatusCode::kInvalidArgument);
}

TEST_F(PlacementTest, AMatmulRunsWhereItsOperandsLieAndMayWriteAcross) {
  const auto run = Compile({Matmul(far_, far_too_, near_)});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->split, nullptr);
  EXPECT_EQ(run->device, device(1));
  EXPECT_THAT(run->peers, ElementsAre(&device(0)->backend()));
  EXPECT_FALSE(run->on_one_device());

  other_device_.CannotReach(absl::UnimplementedError("no way to there"));
  const auto refused = Compile({Matmul(far_, far_too_, near_)}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(refused), "OTHER_DEVICE");
}

TEST_F(PlacementTest, WhatReadsAResultThatCameAcrossWaitsForIt) {
  const auto run = Compile({Matmul(far_, far_too_, near_), Matmul(near_, near_, near_too_),
                            Matmul(far_, far_too_, near_)});
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_NE(run->split, nullptr);
  const auto& parts = run->split->parts();
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].device, device(1));
  EXPECT_EQ(parts[0].lane, &device(1)->lane());
  EXPECT_THAT(parts[0].peers, ElementsAre(&device(0)->backend()));
  EXPECT_EQ(parts[1].device, device(0));
  EXPECT_THAT(parts[1].peers, IsEmpty());
  EXPECT_THAT(parts[1].after, ElementsAre(OpRun::Before{0, 0}));
  EXPECT_THAT(parts[2].after,
              ElementsAre(OpRun::Before{1, 0}));  // not over what is still being read
}

TEST_F(PlacementTest, APlansResultAcrossMayBeReboundToWhatItsDeviceReaches) {
  const auto plan = MakePlan({Matmul(far_, far_, near_)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto bind = [&](const Handle& from, const Handle& to) {
    const std::vector<Rebinding> rebind = {{from, to}};
    return BindPlan(Use(), *plan, rebind, {});
  };
  EXPECT_EQ(bind(near_, near_too_)->device, device(1));
  EXPECT_THAT(bind(near_, near_too_)->peers, ElementsAre(&device(0)->backend()));
  EXPECT_THAT(bind(near_, far_too_)->peers, IsEmpty());
  EXPECT_EQ(bind(far_, near_too_).status().code(), absl::StatusCode::kInvalidArgument);
  device_.Fault(kernels::DeviceFault("smoke"));
  EXPECT_EQ(ReasonOf(bind(near_, near_too_).status()), "DEVICE_FENCED");
}

TEST_F(PlacementTest, WhatWritesOnTwoDevicesIsSplit) {
  const auto writes = Compile({FillOp{At(near_), 1}, CopyOp{At(near_), At(far_)}});
  ASSERT_TRUE(writes.ok()) << writes.status();
  ASSERT_NE(writes->split, nullptr);
  EXPECT_EQ(writes->program->steps().size(), 2u);
  ASSERT_EQ(writes->split->parts().size(), 2u);
  EXPECT_EQ(writes->split->parts()[0].device, device(0));
  EXPECT_EQ(writes->split->parts()[1].device, device(1));
  EXPECT_THAT(writes->split->parts()[1].peers, ElementsAre(&device(0)->backend()));
  EXPECT_FALSE(writes->on_one_device());

  // Or reads into the reply where it does not write.
  const auto reads = Compile({FillOp{At(near_), 1}, ReadOp{At(far_), 0}});
  ASSERT_TRUE(reads.ok()) << reads.status();
  EXPECT_NE(reads->split, nullptr);
  EXPECT_EQ(Compile({FillOp{At(near_), 1}})->split, nullptr);
}

TEST_F(PlacementTest, AnOpOfASplitProgramThatComputesAcrossIsRefusedWithTheRemedy) {
  const auto refused =
      Compile({FillOp{At(near_), 1}, FillOp{At(far_), 1}, Matmul(near_too_, far_, near_)}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refused), "OTHER_DEVICE");
  EXPECT_EQ(std::string(refused.message()),
            "op 2 (matmul) reads a buffer on fake:1, and runs on fake:0, where it writes; an op "
            "runs on one device: put a Copy op before it, whose dst is a buffer on fake:0");
}

TEST_F(PlacementTest, APlanOnTwoDevicesIsReboundOnEach) {
  const auto plan = MakePlan({FillOp{At(near_), 1}, CopyOp{At(near_), At(far_)}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto bind = [&](const Handle& from, const Handle& to) {
    const std::vector<Rebinding> rebind = {{from, to}};
    return BindPlan(Use(), *plan, rebind, {});
  };
  EXPECT_EQ(bind(near_, near_too_)->split, (*plan)->split);
  EXPECT_TRUE(bind(far_, far_too_).ok());
  EXPECT_EQ(bind(near_, far_too_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(bind(far_, near_too_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PlacementTest, ADeviceThatCannotReadAnotherSaysSo) {
  device_.CannotReach(absl::UnimplementedError("no way from there"));
  const auto refused = Compile({CopyOp{At(far_), At(near_)}}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(refused), "OTHER_DEVICE");
  EXPECT_EQ(refused.message(), "no way from there");
  EXPECT_TRUE(Compile({CopyOp{At(near_), At(far_)}}).ok());  // the other one can
}

TEST_F(PlacementTest, ImportedMemoryIsReadWhereItIsMappedOnly) {
  FakeDevice gpu;
  Device other(std::make_unique<FakeBackend>(gpu, "fake:2", "GPU-fake"), {}, clock_, metrics_,
               state_->timeline());
  const kernels::DeviceHandle handle{.handle = std::string(64, 'h'), .size_bytes = 1024};
  auto buffer = Buffer::Create(*red_, other,
                               {.size_bytes = 1024, .kind = kernels::MemoryKind::kDeviceImported},
                               clock_.Now(), {.device = &handle});
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  Peers peers;
  const absl::Status refused = AddPeer(*device(0), **buffer, peers);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("copy it into a buffer of fake:2 first"));
  EXPECT_THAT(peers, IsEmpty());
}

TEST_F(PlacementTest, AFencedSourceIsRefusedWithItsFault) {
  other_device_.Fault(kernels::DeviceFault("smoke"));
  const auto refused = Compile({CopyOp{At(far_), At(near_)}}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused), "DEVICE_FENCED");
}

TEST_F(PlacementTest, WhatWaitsIsNotLaunchedOnceItsSourceHasFaulted) {
  std::vector<absl::Status> answers;
  const auto submit = [&](const std::vector<Op>& ops) {
    auto run = Compile(ops);
    ASSERT_TRUE(run.ok()) << run.status();
    server::Run(*std::move(run), [&](std::shared_ptr<const Outcome> outcome, bool) {
      answers.push_back(outcome->result.status);
    });
  };
  // As many as the look-ahead lets through, and one behind them.
  for (int i = 0; i < 3; ++i) submit({FillOp{At(near_), 1}});
  submit({CopyOp{At(far_), At(near_)}});
  submit({FillOp{At(near_), 2}});
  const int launched = device_.total();
  EXPECT_LT(launched, 4);
  other_device_.Fault(kernels::DeviceFault("smoke"));
  device_.CompleteAll();
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(device_.total(), 4);  // all but the copy
  int fenced = 0;
  for (const absl::Status& answer : answers) fenced += ReasonOf(answer) == "DEVICE_FENCED";
  EXPECT_EQ(fenced, 1);
}

TEST_F(PlacementTest, ASourceThatIsDeletedUnderTheProgramIsFreedAfterIt) {
  auto run = Compile({CopyOp{At(far_), At(near_)}});
  ASSERT_TRUE(run.ok()) << run.status();
  server::Run(*std::move(run), [](std::shared_ptr<const Outcome>, bool) {});
  ASSERT_TRUE(session_->DeleteBuffers({&far_, 1}).ok());
  EXPECT_EQ(used_bytes(1), 2048);
  device_.CompleteAll();
  EXPECT_EQ(used_bytes(1), 1024);
}

TEST_F(PlacementTest, APlansSourceMayBeReboundToWhatItsDeviceReaches) {
  const auto plan = MakePlan({CopyOp{At(far_), At(near_)}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto bind = [&](const Handle& from, const Handle& to) {
    const std::vector<Rebinding> rebind = {{from, to}};
    return BindPlan(Use(), *plan, rebind, {});
  };
  const auto as_made = BindPlan(Use(), *plan, {}, {});
  ASSERT_TRUE(as_made.ok()) << as_made.status();
  EXPECT_EQ(as_made->device, device(0));
  EXPECT_THAT(as_made->peers, ElementsAre(&device(1)->backend()));

  EXPECT_THAT(bind(far_, far_too_)->peers, ElementsAre(&device(1)->backend()));
  EXPECT_THAT(bind(far_, near_too_)->peers, IsEmpty());  // its own device's
  EXPECT_EQ(bind(near_, far_too_).status().code(), absl::StatusCode::kInvalidArgument);

  device_.CannotReach(absl::UnimplementedError("not any more"));
  EXPECT_EQ(bind(far_, far_too_).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(bind(far_, near_too_).ok());
}

TEST_F(PlacementTest, APlanOfOneDeviceIsNotReboundToAnother) {
  const auto plan = MakePlan({CopyOp{At(near_), At(near_too_)}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<Rebinding> rebind = {{near_, far_}};
  EXPECT_EQ(BindPlan(Use(), *plan, rebind, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PlacementTest, APlanWhoseSourceIsFencedIsRefusedWithTheFault) {
  const auto plan = MakePlan({CopyOp{At(far_), At(near_)}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  other_device_.Fault(kernels::DeviceFault("smoke"));
  EXPECT_EQ(ReasonOf(BindPlan(Use(), *plan, {}, {}).status()), "DEVICE_FENCED");
}

}  // namespace
}  // namespace gemmd::server
