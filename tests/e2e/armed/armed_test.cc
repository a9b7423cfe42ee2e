// Armed plans against a real daemon, by a caller that knows the wire and the layout alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "tests/e2e/armed_wire.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/supervised.h"

namespace gemmd::e2e {
namespace {

class ArmedE2eTest : public testing::Test {
 protected:
  explicit ArmedE2eTest(const DaemonOptions& options = {})
      : daemon_(options), wire_(daemon_.target()), armed_(wire_) {}

  Daemon daemon_;
  Wire wire_;
  ArmedWire armed_;
};

TEST_F(ArmedE2eTest, ARingMultiplies) {
  const ArmedMatmul matmul(wire_, armed_.session(), 2);
  const int slot = armed_.Arm(armed_.Plan(matmul.ops()));
  EXPECT_EQ(armed_.Run(slot), GEMMD_ARMED_RAN);
  EXPECT_EQ(matmul.Result(wire_), 8);
  const gemmd_armed_report report = armed_.caller().Report(slot);
  EXPECT_EQ(report.run, 1u);
  EXPECT_EQ(report.code, 0);
  EXPECT_GT(report.device_ns, 0u);
  const v1::ListArmedResponse list = armed_.List();
  ASSERT_EQ(list.slots_size(), 1);
  EXPECT_EQ(list.slots(0).runs(), 1);
  EXPECT_EQ(list.slots(0).plan_label(), "armed");
  EXPECT_EQ(list.slots(0).device(), TestDevice());
}

TEST_F(ArmedE2eTest, TwentyThousandInARow) {
  const ArmedMatmul matmul(wire_, armed_.session(), 3);
  const int slot = armed_.Arm(armed_.Plan(matmul.ops()));
  for (int i = 0; i < 20000; ++i) ASSERT_EQ(armed_.Run(slot), GEMMD_ARMED_RAN) << i;
  EXPECT_EQ(matmul.Result(wire_), 12);
  EXPECT_EQ(armed_.List().slots(0).runs(), 20000);
  EXPECT_EQ(daemon_.Metric("gemmd_armed_runs_total", "status=\"ok\""), 20000);
  EXPECT_EQ(Sum(daemon_.Metrics(), "gemmd_runs_total", "path=\"armed\",status=\"ok\""), 20000);
}

// The daemon's poller sleeps between them.
TEST_F(ArmedE2eTest, RingsThatComeRarelyWakeThePoller) {
  const ArmedMatmul matmul(wire_, armed_.session(), 3);
  const int slot = armed_.Arm(armed_.Plan(matmul.ops()));
  const int by_stream = armed_.Arm(armed_.Plan(matmul.ops()), /*rung_by_stream=*/true);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(WaitUntil([&] { return armed_.caller().header().poller_sleeps != 0; }));
    ASSERT_EQ(armed_.Run(slot), GEMMD_ARMED_RAN);
    ASSERT_TRUE(WaitUntil([&] { return armed_.caller().header().poller_sleeps != 0; }));
    armed_.caller().Set(by_stream);
    ASSERT_EQ(armed_.caller().Wait(by_stream), GEMMD_ARMED_RAN);
  }
}

TEST_F(ArmedE2eTest, AFailedRunLeavesNan) {
  const ArmedMatmul matmul(wire_, armed_.session(), 3);
  v1::ArmPlanRequest request;
  request.set_session_id(armed_.session());
  request.set_plan_id(armed_.Plan(matmul.ops()));
  request.mutable_deadline()->set_nanos(1);  // no run can keep it
  v1::ArmedPlan plan;
  ASSERT_TRUE(armed_.Arm(request, plan).ok());
  EXPECT_EQ(armed_.Run(plan.slot()), GEMMD_ARMED_FAILED);
  EXPECT_STREQ(armed_.caller().Report(plan.slot()).reason, "DEADLINE");
  EXPECT_TRUE(std::isnan(matmul.Result(wire_)));
}

TEST_F(ArmedE2eTest, BadInputGetsAnErrorWithTheRemedy) {
  using grpc::StatusCode;
  const ArmedMatmul matmul(wire_, armed_.session(), 1);
  const std::string plan = armed_.Plan(matmul.ops());
  const std::string other = wire_.OpenSession();
  const auto arm = [&](const std::string& session, const std::string& id, int64_t deadline_ns = 0) {
    v1::ArmPlanRequest request;
    request.set_session_id(session);
    request.set_plan_id(id);
    if (deadline_ns != 0) request.mutable_deadline()->set_nanos(deadline_ns);
    v1::ArmedPlan armed;
    return armed_.Arm(request, armed);
  };
  const auto expect = [](const grpc::Status& status, StatusCode code, const char* text) {
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), testing::HasSubstr(text));
  };
  expect(arm(armed_.session(), "short"), StatusCode::INVALID_ARGUMENT, "plan_id");
  expect(arm(armed_.session(), std::string(16, 'x')), StatusCode::NOT_FOUND, "does not exist");
  expect(arm(other, plan), StatusCode::FAILED_PRECONDITION, "GetArmedRegion");
  ArmedWire second(wire_, 16, other);
  expect(arm(other, plan), StatusCode::NOT_FOUND, "does not exist in this session");
  expect(arm(armed_.session(), plan, -5), StatusCode::INVALID_ARGUMENT, "deadline");
  expect(armed_.Disarm({}), StatusCode::INVALID_ARGUMENT, "slots");
  expect(armed_.Disarm({3}), StatusCode::NOT_FOUND, "slot 3");
  v1::GetArmedRegionRequest request;
  request.set_session_id(armed_.session());
  request.set_slots(20000);
  v1::ArmedRegion region;
  grpc::ClientContext context;
  expect(armed_.stub().GetArmedRegion(&context, request, &region), StatusCode::INVALID_ARGUMENT,
         "16384");
  EXPECT_EQ(armed_.Run(armed_.Arm(plan)), GEMMD_ARMED_RAN);
}

TEST_F(ArmedE2eTest, WithoutASharedSocketThereIsNoRegion) {
  Daemon alone({.config = "share { disabled: true }"});
  Wire wire(alone.target());
  v1::GetArmedRegionRequest request;
  request.set_session_id(wire.OpenSession());
  v1::ArmedRegion region;
  grpc::ClientContext context;
  const auto stub = v1::ArmedService::NewStub(wire.channel());
  const grpc::Status status = stub->GetArmedRegion(&context, request, &region);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("RunPlan"));
}

// Another session's slots go on whatever is written into this one's region.
TEST_F(ArmedE2eTest, AHostileCallerHarmsItselfAlone) {
  const ArmedMatmul matmul(wire_, armed_.session(), 2);
  const int slot = armed_.Arm(armed_.Plan(matmul.ops()));
  ArmedWire hostile(wire_, 1024);
  const ArmedMatmul its(wire_, hostile.session(), 5);
  for (int i = 0; i < 8; ++i) hostile.Arm(hostile.Plan(its.ops()));
  std::atomic<bool> stop{false};
  std::thread scribbler([&] {
    uint32_t value = 1;
    auto* words = static_cast<uint32_t*>(hostile.caller().base());
    while (!stop.load()) {
      for (uint32_t i = 0; i < gemmd_armed_size_bytes(1024) / 4; ++i) {
        std::atomic_ref<uint32_t>(words[i]).store(value = value * 1664525 + 1013904223);
      }
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(armed_.Run(slot), GEMMD_ARMED_RAN);
  stop.store(true);
  scribbler.join();
  EXPECT_EQ(matmul.Result(wire_), 8);
  EXPECT_TRUE(wire_.CloseSession(hostile.session()).ok());
  EXPECT_EQ(armed_.Run(slot), GEMMD_ARMED_RAN);
}

TEST_F(ArmedE2eTest, AClosedSessionLeavesNothing) {
  const ArmedMatmul matmul(wire_, armed_.session(), 2);
  const int slot = armed_.Arm(armed_.Plan(matmul.ops()));
  EXPECT_EQ(daemon_.Metric("gemmd_armed_slots"), 1);
  armed_.caller().Ring(slot);
  ASSERT_TRUE(wire_.CloseSession(armed_.session()).ok());
  EXPECT_NE(armed_.caller().Wait(slot), 0u);  // it ran, or it says that it did not
  EXPECT_EQ(armed_.caller().header().state, GEMMD_ARMED_ENDED);
  EXPECT_EQ(daemon_.Metric("gemmd_armed_slots"), 0);
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon_) == Holdings(); }));
}

TEST_F(ArmedE2eTest, ADrainAnswersWhatIsRungAndRefusesTheRest) {
  const ArmedMatmul matmul(wire_, armed_.session(), 2);
  std::vector<int> slots;
  for (int i = 0; i < 16; ++i) slots.push_back(armed_.Arm(armed_.Plan(matmul.ops())));
  int ran = 0, failed = 0;
  std::thread caller([&] {
    while (armed_.caller().header().state == GEMMD_ARMED_OPEN) {
      for (const int slot : slots) armed_.caller().Ring(slot);
      for (const int slot : slots) {
        // What is rung when the session has ended already is nobody's.
        uint32_t done = 0;
        while ((done = armed_.caller().Wait(slot, absl::Milliseconds(20))) == 0 &&
               armed_.caller().header().state == GEMMD_ARMED_OPEN) {
        }
        (done == GEMMD_ARMED_RAN ? ran : failed) += done != 0;
      }
    }
  });
  EXPECT_EQ(daemon_.Stop(), 0);
  caller.join();
  EXPECT_GT(ran, 0);
  EXPECT_GT(failed, 0);
}

// Callers are killed somewhere between arming, ringing and waiting; another one's results stay
// right.
TEST(ArmedDeathTest, KilledCallersLeaveNothing) {
  Daemon daemon({.config = "session { default_grace_ms: 50 } limits { max_plans: 65536 }"});
  Wire wire(daemon.target());
  ArmedWire armed(wire);
  const ArmedMatmul matmul(wire, armed.session(), 2);
  const int slot = armed.Arm(armed.Plan(matmul.ops()));
  // What filled the buffers is counted until just behind its answer.
  ASSERT_TRUE(WaitUntil([&] { return HoldingsOf(daemon).programs == 0; }));
  const Holdings before = HoldingsOf(daemon);
  std::atomic<bool> stop{false};
  std::atomic<int> runs{0}, failed{0};
  std::thread survivor([&] {
    while (!stop.load()) {
      failed += armed.Run(slot) != GEMMD_ARMED_RAN;
      ++runs;
    }
  });
  constexpr int kWaves = 6, kAtOnce = 3;
  for (int wave = 0; wave < kWaves; ++wave) {
    std::vector<Process> doomed;
    for (int i = 0; i < kAtOnce; ++i) {
      doomed.push_back(Process::Start({ARMED_DOOMED_PATH, daemon.target()}, daemon.dir()));
    }
    for (Process& process : doomed) {
      ASSERT_TRUE(WaitUntil([&] { return process.out() == "held\n"; })) << process.err();
    }
    for (int i = 0; i < kAtOnce; ++i) {
      absl::SleepFor(absl::Microseconds(997 * (wave * kAtOnce + i) % 20011));
      EXPECT_TRUE(doomed[i].running()) << doomed[i].err();
      doomed[i].Signal(SIGKILL);
      ASSERT_EQ(doomed[i].Wait(absl::Minutes(1)), 128 + SIGKILL);
    }
  }
  stop.store(true);
  survivor.join();
  EXPECT_EQ(failed.load(), 0);
  EXPECT_GT(runs.load(), 0);
  EXPECT_EQ(matmul.Result(wire), 8);
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(daemon) == before; }))
      << testing::PrintToString(HoldingsOf(daemon)) << ", before "
      << testing::PrintToString(before);
  EXPECT_EQ(daemon.Metric("gemmd_armed_slots"), 1);
  EXPECT_EQ(daemon.Metric("gemmd_sessions_ended_total", "cause=\"cut\""), kWaves * kAtOnce);
}

// Each process has a share socket and a poller of its own.
TEST(ArmedSuperviseTest, EachDevicesProcessServesItsArmedPlans) {
  Supervised gemmd(
      "devices { name: \"cpu:0\" memory_bytes: 268435456 threads: 1 }\n"
      "devices { name: \"cpu:1\" memory_bytes: 268435456 threads: 1 }\n",
      "drain { notice_ms: 50 limit_ms: 20000 }");
  for (const std::string device : {"cpu:0", "cpu:1"}) {
    Wire wire(gemmd.target(device));
    ArmedWire armed(wire);
    const ArmedMatmul matmul(wire, armed.session(), 2);
    const int slot = armed.Arm(armed.Plan(matmul.ops()));
    EXPECT_EQ(armed.Run(slot), GEMMD_ARMED_RAN);
    EXPECT_EQ(matmul.Result(wire), 8);
    EXPECT_EQ(armed.List().slots(0).device(), device);
  }
}

// Two tenants that keep their slots rung get the same device time, though one's programs are
// larger.
TEST(ArmedFairnessTest, TenantsThatKeepTheirSlotsRungShareTheDevice) {
  Daemon daemon({.config = "tenants { name: \"default\" } tenants { name: \"small\" } tenants { "
                           "name: \"large\" }",
                 .tenants = {"small", "large"},
                 .devices = DeviceEntry(/*threads=*/1)});
  struct Load {
    Load(const Daemon& daemon, const std::string& tenant, int ops)
        : wire(daemon.target(tenant)), armed(wire) {
      constexpr int64_t kSide = 192;
      const std::string a = wire.CreateBuffer(armed.session(), kSide * kSide * 4);
      const std::string d = wire.CreateBuffer(armed.session(), kSide * kSide * 4);
      const v1::Tensor x = View(a, {kSide, kSide}), y = View(d, {kSide, kSide});
      const std::string plan = armed.Plan(std::vector<v1::Op>(ops, MatmulOp(x, x, y)));
      for (int i = 0; i < 16; ++i) slots.push_back(armed.Arm(plan));
      thread = std::thread([this] {
        while (!stop.load()) {
          for (const int slot : slots) {
            if (armed.caller().gate(slot).load() == 0) armed.caller().Ring(slot);
          }
          std::this_thread::sleep_for(std::chrono::microseconds(500));
        }
      });
    }
    ~Load() {
      stop.store(true);
      thread.join();
    }
    Wire wire;
    ArmedWire armed;
    std::vector<int> slots;
    std::atomic<bool> stop{false};
    std::thread thread;
  };
  Load small(daemon, "small", 4), large(daemon, "large", 40);
  const auto used = [](const Samples& samples, const std::string& tenant) {
    return Sum(samples, "gemmd_tenant_device_seconds_total", "tenant=\"" + tenant + "\"");
  };
  Samples begin, end;
  ASSERT_TRUE(WaitUntil([&] {
    begin = daemon.Metrics();
    return used(begin, "small") > 0.2 && used(begin, "large") > 0.2;
  }));
  // On a busy machine a tenant's slots are rung late now and then: one of several spans must be
  // fair.
  double ratio = 0;
  for (int span = 0; span < 8 && std::abs(ratio - 1) > 0.05; ++span) {
    ASSERT_TRUE(WaitUntil(
        [&] {
          end = daemon.Metrics();
          return used(end, "small") + used(end, "large") >
                 used(begin, "small") + used(begin, "large") + 4;
        },
        absl::Minutes(2)));
    const double a = used(end, "small") - used(begin, "small");
    const double b = used(end, "large") - used(begin, "large");
    std::printf("device seconds: small %.3f, large %.3f\n", a, b);
    ratio = a / b;
    begin = end;
  }
  EXPECT_NEAR(ratio, 1.0, 0.05);
}

}  // namespace
}  // namespace gemmd::e2e
