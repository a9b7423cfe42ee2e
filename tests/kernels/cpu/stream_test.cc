#include "kernels/cpu/stream.h"

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"

namespace gemmd::kernels::cpu {
namespace {

class StreamTest : public testing::Test {
 protected:
  StreamTest() : backend_(*CreateCpuBackend({})) {}

  // Fills `count` floats of slot 0 with `value`.
  std::shared_ptr<const Program> Fill(int64_t count, double value) {
    return *backend_->Compile({Op(FillOp{Dense(0, DType::kF32, MakeDims({count})), value})});
  }
  std::unique_ptr<Memory> Allocate(int64_t bytes) {
    return *backend_->Allocate(bytes, MemoryKind::kDevice);
  }
  Bindings Bind(const Memory& memory) { return {{memory.address()}, {}, {}}; }

  std::unique_ptr<Backend> backend_;
};

TEST_F(StreamTest, RunsSmallProgramsBeforeLaunchReturns) {
  auto memory = Allocate(64);
  auto stream = backend_->CreateStream({});
  std::thread::id ran_on;
  stream->Launch(Fill(16, 2), Bind(*memory),
                 [&](LaunchResult) { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_EQ(reinterpret_cast<float*>(memory->address())[15], 2);
}

TEST_F(StreamTest, NeverRunsOnTheCallersThreadWhenInlineBelowIsZero) {
  auto memory = Allocate(64);
  auto stream = backend_->CreateStream({.inline_below = absl::ZeroDuration()});
  absl::Notification done;
  std::thread::id ran_on;
  stream->Launch(Fill(16, 2), Bind(*memory), [&](LaunchResult) {
    ran_on = std::this_thread::get_id();
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST_F(StreamTest, RunsLargeProgramsOnItsThread) {
  auto memory = Allocate(64 << 20);
  auto stream = backend_->CreateStream({});
  absl::Notification done;
  std::thread::id ran_on;
  stream->Launch(Fill(16 << 20, 2), Bind(*memory), [&](LaunchResult) {
    ran_on = std::this_thread::get_id();
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST_F(StreamTest, CompletesOnceEachInLaunchOrder) {
  auto memory = Allocate(8 << 20);
  auto stream = backend_->CreateStream({});
  std::vector<int> order;  // only done touches it, one at a time
  absl::Notification last;
  for (int i = 0; i < 200; ++i) {
    // Large ones queue; the small ones behind them must not overtake.
    stream->Launch(Fill(i % 20 == 0 ? 2 << 20 : 16, i), Bind(*memory), [&, i](LaunchResult result) {
      EXPECT_TRUE(result.status.ok());
      order.push_back(i);
      if (i == 199) last.Notify();
    });
  }
  last.WaitForNotification();
  ASSERT_EQ(order.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[i], i);
  EXPECT_EQ(reinterpret_cast<float*>(memory->address())[0], 199);
}

TEST_F(StreamTest, DestructionWaitsForEverythingLaunched) {
  auto memory = Allocate(8 << 20);
  std::atomic<int> completed = 0;
  {
    auto stream = backend_->CreateStream({});
    for (int i = 0; i < 50; ++i) {
      stream->Launch(Fill(2 << 20, i), Bind(*memory), [&](LaunchResult) { ++completed; });
    }
  }
  EXPECT_EQ(completed, 50);
}

TEST_F(StreamTest, LaunchesFromWithinDoneQueueBehind) {
  auto memory = Allocate(64);
  auto stream = backend_->CreateStream({});
  absl::Notification second_done;
  bool first_returned = false;
  const auto program = Fill(16, 1);
  stream->Launch(program, Bind(*memory), [&](LaunchResult) {
    stream->Launch(program, Bind(*memory), [&](LaunchResult) {
      EXPECT_TRUE(first_returned);
      second_done.Notify();
    });
    first_returned = true;
  });
  second_done.WaitForNotification();
}

TEST_F(StreamTest, ReportsTimesForEveryOp) {
  auto memory = Allocate(64 << 20);
  const Op fill = FillOp{Dense(0, DType::kF32, MakeDims({16 << 20})), 1};
  const auto program = *backend_->Compile({fill, fill, fill});
  auto stream = backend_->CreateStream({});
  absl::Notification done;
  LaunchResult result;
  const absl::Time before = absl::Now();
  stream->Launch(program, Bind(*memory), [&](LaunchResult r) {
    result = std::move(r);
    done.Notify();
  });
  done.WaitForNotification();
  ASSERT_EQ(result.op_seconds.size(), 3u);
  EXPECT_TRUE(result.ops_timed);
  float sum = 0;
  for (float seconds : result.op_seconds) {
    EXPECT_GT(seconds, 0);
    sum += seconds;
  }
  EXPECT_NEAR(sum, result.device_seconds, 1e-3 * sum);
  EXPECT_GE(result.started, before - absl::Milliseconds(100));
  EXPECT_LE(result.started, absl::Now() + absl::Milliseconds(100));
}

TEST_F(StreamTest, RefusesBindingsThatLackWhatTheProgramNames) {
  const TensorRef tensor = Dense(1, DType::kF32, MakeDims({4}));
  const auto program = *backend_->Compile({Op(WriteOp{tensor, 0}), Op(ReadOp{tensor, 0})});
  auto memory = Allocate(16);
  auto stream = backend_->CreateStream({});
  std::vector<std::byte> right(16), wrong(15);
  const auto code = [&](std::vector<std::byte*> slots, absl::Span<const std::byte> input,
                        std::vector<OutputSpan> outputs) {
    Bindings bindings{std::move(slots), {input}, std::move(outputs)};
    absl::StatusCode code = absl::StatusCode::kOk;
    stream->Launch(program, std::move(bindings),
                   [&](LaunchResult result) { code = result.status.code(); });
    return code;
  };
  std::byte* slot = memory->address();
  EXPECT_EQ(code({slot}, right, {absl::MakeSpan(right)}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({slot, slot}, wrong, {absl::MakeSpan(right)}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({slot, slot}, right, {}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({slot, slot}, right, {absl::MakeSpan(right)}), absl::StatusCode::kOk);
}

TEST_F(StreamTest, ManyStreamsRunOneProgramAtOnce) {
  const Dims shape = MakeDims({120, 120});
  MatmulOp op;
  op.a.values = Dense(0, DType::kF32, shape);
  op.b.values = Dense(1, DType::kF32, shape);
  op.d = Dense(2, DType::kF32, shape);
  const auto program =
      *backend_->Compile({Op(FillOp{op.a.values, 1}), Op(FillOp{op.b.values, 2}), Op(op)});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto stream = backend_->CreateStream({});
      std::vector<std::unique_ptr<Memory>> memories;
      Bindings bindings;
      for (int i = 0; i < 3; ++i) {
        memories.push_back(Allocate(120 * 120 * 4));
        bindings.slots.push_back(memories.back()->address());
      }
      for (int i = 0; i < 10; ++i) {
        absl::Notification done;
        stream->Launch(program, bindings, [&](LaunchResult) { done.Notify(); });
        done.WaitForNotification();
        EXPECT_EQ(reinterpret_cast<float*>(bindings.slots[2])[120 * 120 - 1], 240);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gemmd::kernels::cpu
