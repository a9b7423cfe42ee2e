// Programs that write on two devices, and a linear layer whose weight lies in halves on them.

#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/str_join.h"
#include "client/cpp/armed.h"
#include "client/cpp/split_linear.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/types.pb.h"
#include "tests/e2e/two_devices.h"

namespace gemmd::e2e {
namespace {

using client::Copy;
using client::DType;
using client::Fill;
using client::Matmul;
using client::OpList;
using client::Read;
using client::Split;
using client::SplitBatch;
using client::SplitLinear;
using client::SplitLinearOptions;
using client::Write;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SplitTest : public TwoDevicesTest {
 protected:
  void SetUp() override {
    TwoDevicesTest::SetUp();
    if (IsSkipped()) return;
    near_ = On(kNear, {2, 2});
    near_too_ = On(kNear, {2, 2});
    far_ = On(kFar, {2, 2});
    far_too_ = On(kFar, {2, 2});
  }

  client::Buffer near_, near_too_, far_, far_too_;
};

TEST_F(SplitTest, OneProgramWritesOnBothAndItsReportNamesTheDeviceOfEachOp) {
  OpList ops;
  ops.Add(Write{near_.tensor(), Floats({1, 2, 3, 4})});
  ops.Add(Write{far_.tensor(), Floats({5, 6, 7, 8})});
  ops.Add(Matmul{.a = near_.tensor(), .b = near_.tensor(), .d = near_too_.tensor()});
  ops.Add(Matmul{.a = far_.tensor(), .b = far_.tensor(), .d = far_too_.tensor()});
  ops.Add(Read{far_too_.tensor()});
  ops.Add(Read{near_too_.tensor()});
  const client::Result result = Must(session_.Execute(ops));
  EXPECT_THAT(FloatsOf(result, 0), ElementsAre(61, 83, 83, 113));
  EXPECT_THAT(FloatsOf(result, 1), ElementsAre(5, 11, 11, 25));
  const v1::ProgramReport& report = result.report();
  EXPECT_EQ(report.device(), kNear + "," + kFar);
  ASSERT_EQ(report.ops_size(), 6);
  std::vector<std::string> devices, names;
  for (const v1::OpReport& op : report.ops()) {
    devices.push_back(op.device());
    names.push_back(op.op());
    EXPECT_GT(op.device_seconds(), 0) << op.op();
  }
  EXPECT_THAT(devices, ElementsAre(kNear, kFar, kNear, kFar, kFar, kNear));
  EXPECT_THAT(names, ElementsAre("write", "write", "matmul", "matmul", "read", "read"));
  EXPECT_GT(report.device_seconds(), 0);
}

TEST_F(SplitTest, AProgramOfOneDeviceNamesItOnceAlone) {
  const client::Result result = Must(session_.Execute(OpList().Add(Fill{far_.tensor(), 1})));
  EXPECT_EQ(result.report().device(), kFar);
  EXPECT_EQ(result.report().ops(0).device(), "");
}

// Back and forth: each op reads what the other device has just written.
TEST_F(SplitTest, OpsOfTwoDevicesKeepTheListsOrder) {
  constexpr int kHops = 40;
  client::Buffer one = On(kNear, {2, 2});
  client::Buffer one_far = On(kFar, {2, 2});
  OpList ops;
  ops.Add(Write{one.tensor(), Floats({1, 1, 0, 1})});
  ops.Add(Write{one_far.tensor(), Floats({1, 1, 0, 1})});
  ops.Add(Write{near_.tensor(), Floats({1, 0, 0, 1})});
  for (int hop = 0; hop < kHops; ++hop) {
    ops.Add(Matmul{.a = one.tensor(), .b = near_.tensor().Transposed(), .d = near_too_.tensor()});
    ops.Add(Copy{near_too_.tensor(), far_.tensor()});
    ops.Add(Matmul{.a = one_far.tensor(), .b = far_.tensor().Transposed(), .d = far_too_.tensor()});
    ops.Add(Copy{far_too_.tensor(), near_.tensor()});
  }
  ops.Add(Read{near_.tensor()});
  client::Plan plan = Must(session_.CreatePlan(ops));
  EXPECT_EQ(plan.info().device(), kNear + "," + kFar);
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(FloatsOf(Must(plan.Run())), ElementsAre(1, 2 * kHops, 0, 1));
  }
}

// What is large enough to travel beside the work of either device.
TEST_F(SplitTest, LargeCopiesBothWaysArriveWhole) {
  constexpr int64_t kElements = 3 << 20;
  client::Buffer from_near = On(kNear, {kElements}), to_near = On(kNear, {kElements});
  client::Buffer from_far = On(kFar, {kElements}), to_far = On(kFar, {kElements});
  OpList ops;
  for (int round = 1; round <= 4; ++round) {
    ops.Add(Fill{from_near.tensor(), 1.0 * round});
    ops.Add(Fill{from_far.tensor(), -1.0 * round});
    ops.Add(Copy{from_near.tensor(), to_far.tensor()});
    ops.Add(Copy{from_far.tensor(), to_near.tensor()});
    // At once over what has just been sent: it must have arrived before.
    ops.Add(Fill{from_near.tensor(), 100});
    ops.Add(Fill{from_far.tensor(), 100});
    for (const int64_t at : {int64_t{0}, kElements / 2, kElements - 1}) {
      ops.Add(Read{to_near.tensor().Slice(0, at, 1)});
      ops.Add(Read{to_far.tensor().Slice(0, at, 1)});
    }
  }
  const client::Result result = Must(session_.Execute(ops));
  for (int i = 0; i < result.outputs(); ++i) {
    const float round = static_cast<float>(i / 6 + 1);
    EXPECT_THAT(FloatsOf(result, i), ElementsAre(i % 2 == 0 ? -round : round)) << i;
  }
}

TEST_F(SplitTest, APlanIsReboundOnEachDeviceAndNotAcross) {
  client::Buffer other_far = On(kFar, {2, 2});
  OpList ops;
  ops.Add(Fill{near_.tensor(), 1}).Add(Fill{far_.tensor(), 2});
  ops.Add(Copy{far_.tensor(), near_too_.tensor()}).Add(Read{near_too_.tensor()});
  client::Plan plan = Must(session_.CreatePlan(ops));
  EXPECT_THAT(FloatsOf(Must(plan.Run({.rebind = {{far_.id(), other_far.id()}}}))),
              ElementsAre(2, 2, 2, 2));
  const absl::Status refused =
      plan.Run({.rebind = {{far_.id(), far_too_.id()}, {near_.id(), other_far.id()}}}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("bind one of that device"));
}

// Each device's product is stored on the other and used there, round after round over the same
// bytes: neither is read before it has come, nor overwritten while it is read.
TEST_F(SplitTest, ResultsOfMatmulsArriveOnTheOtherDeviceBeforeTheyAreUsed) {
  constexpr int kRounds = 30;
  client::Buffer from_far = On(kNear, {2, 2}), from_near = On(kFar, {2, 2});
  client::Buffer one = On(kNear, {2, 2}), one_far = On(kFar, {2, 2});
  OpList ops;
  ops.Add(Write{one.tensor(), Floats({1, 1, 0, 1})});
  ops.Add(Write{one_far.tensor(), Floats({1, 1, 0, 1})});
  ops.Add(Write{near_.tensor(), Floats({1, 0, 0, 1})});
  ops.Add(Write{far_.tensor(), Floats({1, 5, 0, 1})});
  for (int round = 0; round < kRounds; ++round) {
    ops.Add(Matmul{.a = one.tensor(), .b = near_.tensor().Transposed(), .d = from_near.tensor()});
    ops.Add(Matmul{.a = one_far.tensor(), .b = far_.tensor().Transposed(), .d = from_far.tensor()});
    ops.Add(Copy{from_far.tensor(), near_.tensor()});
    ops.Add(Copy{from_near.tensor(), far_.tensor()});
  }
  ops.Add(Read{near_.tensor()}).Add(Read{far_.tensor()});
  client::Plan plan = Must(session_.CreatePlan(ops));
  for (int run = 0; run < 3; ++run) {
    const client::Result result = Must(plan.Run());
    EXPECT_THAT(FloatsOf(result, 0), ElementsAre(1, kRounds, 0, 1));
    EXPECT_THAT(FloatsOf(result, 1), ElementsAre(1, kRounds + 5, 0, 1));
    EXPECT_EQ(result.report().ops(4).device(), kNear);
    EXPECT_EQ(result.report().ops(5).device(), kFar);
  }
}

TEST_F(SplitTest, AnOpThatComputesAcrossIsRefusedWithTheRemedy) {
  OpList ops;
  ops.Add(Fill{near_.tensor(), 1}).Add(Fill{far_.tensor(), 1});
  ops.Add(Matmul{.a = near_.tensor(), .b = far_.tensor(), .d = near_too_.tensor()});
  const absl::Status refused = session_.Execute(ops).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client::ReasonOf(refused), "OTHER_DEVICE");
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("op 2 (matmul) reads a buffer on " + kFar + ", and runs on " + kNear));
}

// A queue's order holds across devices, before and behind a program on both.
TEST_F(SplitTest, AQueueKeepsItsOrderAroundAProgramOnBoth) {
  client::Queue queue = Must(session_.OpenQueue());
  std::vector<client::Ticket> tickets;
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    tickets.push_back(Must(queue.Submit(OpList().Add(Fill{near_.tensor(), 1.0 * round}))));
    OpList both;
    both.Add(Copy{near_.tensor(), far_.tensor()}).Add(Fill{near_.tensor(), -1});
    tickets.push_back(Must(queue.Submit(both)));
    OpList read;
    read.Add(Read{far_.tensor().Slice(0, 0, 1)});
    tickets.push_back(Must(queue.Submit(read)));
    OpList back;
    back.Add(Read{near_.tensor().Slice(0, 0, 1)});
    tickets.push_back(Must(queue.Submit(back)));
  }
  for (int round = 0; round < kRounds; ++round) {
    Must(tickets[4 * round].Wait());
    Must(tickets[4 * round + 1].Wait());
    const float value = static_cast<float>(round);
    EXPECT_THAT(FloatsOf(Must(tickets[4 * round + 2].Wait())), ElementsAre(value, value));
    EXPECT_THAT(FloatsOf(Must(tickets[4 * round + 3].Wait())), ElementsAre(-1, -1));
  }
}

TEST_F(SplitTest, APlanOnBothIsNotArmed) {
  client::Plan plan =
      Must(session_.CreatePlan(OpList().Add(Fill{near_.tensor(), 1}).Add(Fill{far_.tensor(), 2})));
  const absl::Status refused = session_.Arm(plan).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("arm a plan of each device"));
}

// One session's plans on either device, rung at once; each reads what the other device holds, too.
TEST_F(SplitTest, PlansOfBothDevicesAreArmedSideBySide) {
  constexpr absl::Duration kPatience = absl::Seconds(30);
  client::Buffer unit = On(kNear, {2, 2}), unit_far = On(kFar, {2, 2});
  Must(session_.Execute(OpList()
                            .Add(Write{unit.tensor(), Floats({2, 0, 0, 2})})
                            .Add(Write{unit_far.tensor(), Floats({3, 0, 0, 3})})
                            .Add(Fill{near_.tensor(), 1})
                            .Add(Fill{far_.tensor(), 1})));
  const auto arm = [&](const client::Buffer& x, const client::Buffer& w, const client::Buffer& y) {
    client::Plan plan = Must(session_.CreatePlan(
        OpList().Add(Matmul{.a = x.tensor(), .b = w.tensor(), .d = y.tensor()})));
    return std::pair(Must(session_.Arm(plan)), std::move(plan));
  };
  auto [near, near_plan] = arm(near_, unit, near_too_);
  auto [far, far_plan] = arm(far_, unit_far, far_too_);
  EXPECT_EQ(near.device(), kNear);
  EXPECT_EQ(far.device(), kFar);
  for (int run = 1; run <= 200; ++run) {
    ASSERT_TRUE(near.Ring().ok());
    ASSERT_TRUE(far.Ring().ok());
    ASSERT_TRUE(near.Wait(kPatience).ok());
    ASSERT_TRUE(far.Wait(kPatience).ok());
  }
  // A GPU tells of a run's end before the daemon writes its report.
  for (const client::Armed* armed : {&near, &far}) {
    EXPECT_TRUE(WaitUntil([&] { return armed->report().run == 200; })) << armed->report().run;
  }
  const client::Result result =
      Must(session_.Execute(OpList().Add(Read{near_too_.tensor()}).Add(Read{far_too_.tensor()})));
  EXPECT_THAT(FloatsOf(result, 0), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(FloatsOf(result, 1), ElementsAre(3, 3, 3, 3));
}

std::vector<float> RandomFloats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> any(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = any(random);
  return values;
}

std::vector<float> ValuesOf(const std::string& bytes) {
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

struct Case {
  int devices;
  Split split;
  bool quantize;
  int64_t m, n, k;
};

class SplitLinearTest : public TwoDevicesTest, public testing::WithParamInterface<Case> {
 protected:
  SplitLinearTest() : TwoDevicesTest("", GetParam().devices) {}
};

// Against the whole product of the numbers as they are; FP8 has 3 bits of fraction.
TEST_P(SplitLinearTest, GivesWhatOneDeviceGivesAndTheSameBitsEachTime) {
  const Case& c = GetParam();
  const int64_t m = c.m, n = c.n, k = c.k;
  const std::vector<float> x = RandomFloats(m * k, 1), weight = RandomFloats(n * k, 2),
                           bias = RandomFloats(n, 3);
  const auto make = [&](std::vector<std::string> devices) {
    return Must(SplitLinear::Create(session_,
                                    {.split = c.split,
                                     .devices = std::move(devices),
                                     .n = n,
                                     .k = k,
                                     .quantize = c.quantize,
                                     .bias = client::AsBytes(absl::MakeConstSpan(bias))},
                                    client::AsBytes(absl::MakeConstSpan(weight))));
  };
  std::vector<std::string> all;
  for (int i = 0; i < c.devices; ++i) all.push_back(DeviceName(i));
  const auto layer = make(all);
  SplitBatch batch = Must(layer->Prepare(m));
  const SplitBatch::Output first = Must(batch.Run(Floats(x)));
  const std::vector<float> got = ValuesOf(first.y);
  ASSERT_EQ(got.size(), static_cast<size_t>(m * n));
  double worst = 0;
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t col = 0; col < n; ++col) {
      double sum = bias[col];
      for (int64_t i = 0; i < k; ++i) sum += double{x[row * k + i]} * weight[col * k + i];
      worst = std::max(worst, std::abs(sum - got[row * n + col]));
    }
  }
  EXPECT_LT(worst, (c.quantize ? 0.2 : 1e-4) * std::sqrt(static_cast<double>(k)));
  const auto one = make({kFar});
  SplitBatch whole = Must(one->Prepare(m));
  const std::vector<float> alone = ValuesOf(Must(whole.Run(Floats(x))).y);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], alone[i], 1e-4 * std::sqrt(static_cast<double>(k))) << i;
  }
  for (int again = 0; again < 3; ++again) {
    EXPECT_TRUE(Must(batch.Run(Floats(x))).y == first.y) << again;
  }
  EXPECT_EQ(first.result.report().device(), absl::StrJoin(all, ","));
  // And by the caller's own program.
  ASSERT_TRUE(batch.Load(Floats(x)).ok());
  OpList ops;
  batch.AddQuantize(ops);
  batch.AddProduct(ops);
  Must(session_.Execute(ops));
  EXPECT_TRUE(Must(batch.Fetch()) == first.y);
}

INSTANTIATE_TEST_SUITE_P(
    Layers, SplitLinearTest,
    testing::Values(Case{2, Split::kColumns, true, 17, 512, 256},
                    Case{2, Split::kColumns, true, 5, 328, 384},  // 3 blocks: 256 and 72
                    Case{2, Split::kColumns, false, 9, 384, 64},
                    Case{2, Split::kRows, true, 17, 384, 512},
                    Case{2, Split::kRows, true, 33, 328, 640},  // 5 blocks of k: 384 and 256
                    Case{2, Split::kRows, false, 9, 256, 296},
                    Case{4, Split::kColumns, true, 5, 712, 384},  // 6 blocks: 256, 256, 128, 72
                    Case{4, Split::kRows, true, 33, 712, 640},    // of k 256 and three times 128
                    Case{4, Split::kRows, false, 9, 512, 552}));

class SplitLayersTest : public TwoDevicesTest, public testing::WithParamInterface<int> {
 protected:
  SplitLayersTest() : TwoDevicesTest("", GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Devices, SplitLayersTest, testing::Values(2, 4));

// Layer behind layer, each on what the one in front gave, over the same memory: sums of ones, so
// that one that is early or late shows.
TEST_P(SplitLayersTest, ProductsByRowsOneBehindTheOtherAreEachWhole) {
  const int devices = GetParam();
  constexpr int64_t kRows = 128, kWidth = 512;  // n = k: what comes out goes in
  constexpr int kLayers = 12;
  std::vector<std::string> all;
  for (int i = 0; i < devices; ++i) all.push_back(DeviceName(i));
  const std::vector<float> weight(kWidth * kWidth, 1.0f / 256);
  const auto layer = Must(SplitLinear::Create(
      session_,
      {.split = Split::kRows, .devices = all, .n = kWidth, .k = kWidth, .quantize = false},
      client::AsBytes(absl::MakeConstSpan(weight))));
  SplitBatch batch = Must(layer->Prepare(kRows));
  ASSERT_TRUE(batch.Load(Floats(std::vector<float>(kRows * kWidth, 1))).ok());
  OpList ops;
  for (int i = 0; i < kLayers; ++i) {
    batch.AddProduct(ops);
    for (int at = 0; at < devices; ++at) ops.Add(Copy{batch.y(at), batch.x(at)});
  }
  client::Plan plan = Must(session_.CreatePlan(ops));
  for (int run = 1; run <= 4; ++run) {
    Must(plan.Run());
    EXPECT_THAT(ValuesOf(Must(batch.Fetch())),
                testing::Each(std::ldexp(1.0f, run * kLayers)));  // each layer doubles
  }
}

class SplitOptionsTest : public TwoDevicesTest {
 protected:
  absl::Status Refusal(const SplitLinearOptions& options) {
    const std::vector<float> weight(static_cast<size_t>(options.n * options.k));
    return SplitLinear::Create(session_, options, client::AsBytes(absl::MakeConstSpan(weight)))
        .status();
  }
};

TEST_F(SplitOptionsTest, WhatCannotBeSplitIsRefusedWithTheRemedy) {
  const std::vector<std::string> both = {kNear, kFar};
  for (const auto& [options, words] : std::vector<std::pair<SplitLinearOptions, std::string>>{
           {{.devices = both, .n = 128, .k = 512}, "1 blocks of 128 for 2 devices"},
           {{.split = Split::kRows, .devices = both, .n = 512, .k = 128}, "for 2 devices"},
           {{.n = 512, .k = 512}, "name one at least"},
           {{.devices = {kNear, kNear}, .n = 512, .k = 512}, "named twice"},
           {{.split = Split::kRows,
           .devices = both,
           .n = 512,
           .k = 512,
           .activation = client::Activation::kRelu},
            "apply it to y"},
           {{.devices = both, .n = 512, .k = 512, .dtype = DType::kI8}, "use f32, bf16 or f16"}}) {
    const absl::Status refused = Refusal(options);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(words));
  }
  EXPECT_EQ(Refusal({.devices = {kNear, "cpu:77"}, .n = 512, .k = 512}).code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace gemmd::e2e
