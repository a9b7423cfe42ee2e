// Inputs and outputs of plans through memory that client and daemon share.

#include <future>
#include <optional>
#include <thread>

#include "gemmd/v1/session_service.pb.h"
#include "tests/e2e/inline_data.h"
#include "tests/e2e/two_devices.h"

namespace gemmd::e2e {
namespace {

using client::OpList;
using client::Plan;
using client::PlanArgs;
using client::Read;
using client::Route;
using client::Write;

class SharePlanTest : public E2eTest {
 protected:
  using E2eTest::E2eTest;

  Plan EchoPlan() { return Must(session_.CreatePlan(Echo(buffer_, Pattern(kBytes)))); }
  int64_t Plans() {
    session_.FlushDeletions();
    return Must(client_.ListSessions()).at(0).plans();
  }

  client::Buffer buffer_ = Must(session_.CreateBuffer({.size_bytes = kBytes}));
};

TEST_F(SharePlanTest, InputsAndOutputsGoThroughSharedMemory) {
  const Plan plan = EchoPlan();
  for (int i = 0; i < 5; ++i) {
    const std::string bytes = Pattern(kBytes, i);
    const client::Result result = Must(plan.Run({.inputs = {bytes}}));
    EXPECT_EQ(Ran(result), kByShm);
    EXPECT_EQ(OpsOf(result), kByGrpc);  // the caller's own
    ASSERT_EQ(result.outputs(), 1);
    EXPECT_EQ(result.output(0), bytes);
  }
  EXPECT_EQ(Plans(), 1);
  EXPECT_EQ(Staging(session_), 1);

  const std::string bytes = Pattern(kBytes, 7);
  const client::Result by_grpc = Must(plan.Run({.inputs = {bytes}}, {.route = Route::kGrpc}));
  EXPECT_EQ(Ran(by_grpc), kByGrpc);
  EXPECT_EQ(by_grpc.output(0), bytes);
}

TEST_F(SharePlanTest, ItsOwnInputsAndLittleDataGoByGrpc) {
  const Plan plan = EchoPlan();
  EXPECT_EQ(Ran(Must(plan.Run({.inputs = {Pattern(kBytes, 1)}}))), kByShm);
  const client::Result own = Must(plan.Run());
  EXPECT_EQ(Ran(own), kByGrpc);
  EXPECT_EQ(own.output(0), Pattern(kBytes));
  EXPECT_EQ(plan.Run({}, {.route = Route::kShm}).status().code(),
            absl::StatusCode::kFailedPrecondition);

  const Plan little = Must(session_.CreatePlan(Echo(buffer_, "little")));
  EXPECT_EQ(Ran(Must(little.Run({.inputs = {"LITTLE"}}))), kByGrpc);
  const client::Result forced = Must(little.Run({.inputs = {"LITTLE"}}, {.route = Route::kShm}));
  EXPECT_EQ(Ran(forced), kByShm);
  EXPECT_EQ(forced.output(0), "LITTLE");
}

TEST_F(SharePlanTest, ReadsAloneShareToo) {
  const client::Tensor all = Bytes(buffer_);
  const Plan plan = Must(session_.CreatePlan(OpList().Add(client::Fill{all, 3}).Add(Read{all})));
  const client::Result result = Must(plan.Run());
  EXPECT_EQ(Ran(result), (std::vector<std::string>{"fill", "copy"}));
  EXPECT_EQ(result.output(0), std::string(kBytes, '\3'));
}

TEST_F(SharePlanTest, ResultsKeepTheirOutputs) {
  std::vector<client::Result> results;
  {
    const Plan plan = EchoPlan();
    for (int i = 0; i < 8; ++i) {  // each has its place as long as it is there
      results.push_back(Must(plan.Run({.inputs = {Pattern(kBytes, i)}})));
    }
  }
  Must(session_.Close());
  for (int i = 0; i < 8; ++i) EXPECT_EQ(results[i].output(0), Pattern(kBytes, i)) << i;
}

TEST_F(SharePlanTest, KeptResultsTakeMoreOfTheMemoryUntilItIsFull) {
  constexpr int64_t kLarge = 2 << 20;
  client::Buffer buffer = Must(session_.CreateBuffer({.size_bytes = kLarge}));
  const Plan plan = Must(session_.CreatePlan(Echo(buffer, Pattern(kLarge))));
  std::vector<client::Result> results;
  const auto run = [&](int i) {
    results.push_back(Must(plan.Run({.inputs = {Pattern(kLarge, i)}})));
    return Ran(results.back());
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(run(i), kByShm) << i;  // 4 MiB each, there and back
  EXPECT_EQ(StagingBytes(session_), kShared);
  for (int i = 4; i < 6; ++i) EXPECT_EQ(run(i), kByGrpc) << i;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(results[i].output(0), Pattern(kLarge, i)) << i;
  const absl::Status none =
      plan.Run({.inputs = {Pattern(kLarge)}}, {.route = Route::kShm}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kResourceExhausted) << none;
  results.erase(results.begin());
  EXPECT_EQ(run(6), kByShm);
  EXPECT_EQ(Plans(), 1);
}

TEST_F(SharePlanTest, RunsOnOtherBuffers) {
  client::Buffer other = Must(session_.CreateBuffer({.size_bytes = kBytes}));
  const Plan plan = EchoPlan();
  const std::string first = Pattern(kBytes, 1), second = Pattern(kBytes, 2);
  Must(plan.Run({.inputs = {first}}));
  const client::Result result =
      Must(plan.Run({.rebind = {{buffer_.id(), other.id()}}, .inputs = {second}}));
  EXPECT_EQ(Ran(result), kByShm);
  EXPECT_EQ(result.output(0), second);
  const auto content = [&](const client::Buffer& buffer) {
    return std::string(
        Must(session_.Execute(OpList().Add(Read{Bytes(buffer)}), {.route = Route::kGrpc}))
            .output(0));
  };
  EXPECT_EQ(content(buffer_), first);
  EXPECT_EQ(content(other), second);
}

TEST_F(SharePlanTest, ARefusalSpeaksOfTheCallersPlan) {
  const Plan plan = EchoPlan();
  const auto refusal = [&](const PlanArgs& args, Route route = Route::kAuto) {
    return plan.Run(args, {.route = route}).status();
  };
  const std::string bytes = Pattern(kBytes), less = bytes.substr(1);
  client::Buffer small = Must(session_.CreateBuffer({.size_bytes = 16}));
  for (const PlanArgs& wrong :
       {PlanArgs{.inputs = {less}}, PlanArgs{.inputs = {bytes, bytes}},
        PlanArgs{.rebind = {{buffer_.id(), small.id()}}, .inputs = {bytes}},
        PlanArgs{.rebind = {{small.id(), buffer_.id()}}, .inputs = {bytes}}}) {
    const absl::Status by_grpc = refusal(wrong, Route::kGrpc);
    EXPECT_EQ(refusal(wrong).message(), by_grpc.message());
    EXPECT_EQ(by_grpc.code(), absl::StatusCode::kInvalidArgument);
    std::promise<absl::Status> async;
    plan.RunAsync(wrong, {}, [&](const absl::StatusOr<client::Result>& result) {
      async.set_value(result.status());
    });
    EXPECT_EQ(async.get_future().get().message(), by_grpc.message());
  }
  EXPECT_EQ(Ran(Must(plan.Run({.inputs = {bytes}}))), kByShm);
}

TEST_F(SharePlanTest, AnAsynchronousRunNeedsItsInputsNoLonger) {
  const Plan plan = EchoPlan();
  for (int i = 0; i < 3; ++i) {
    std::promise<absl::StatusOr<client::Result>> async;
    std::optional<std::string> bytes = Pattern(kBytes, i);
    plan.RunAsync({.inputs = {*bytes}}, {}, [&](absl::StatusOr<client::Result> result) {
      async.set_value(std::move(result));
    });
    bytes->assign(bytes->size(), 'x');
    bytes.reset();
    const client::Result result = Must(async.get_future().get());
    EXPECT_EQ(Ran(result), kByShm);
    EXPECT_EQ(result.output(0), Pattern(kBytes, i));
  }
}

TEST_F(SharePlanTest, ManyAtOnce) {
  const Plan plan = EchoPlan();
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      client::Buffer own = Must(session_.CreateBuffer({.size_bytes = kBytes}));
      for (int i = 0; i < 30; ++i) {
        const std::string bytes = Pattern(kBytes, 100 * t + i);
        const client::Result result =
            Must(plan.Run({.rebind = {{buffer_.id(), own.id()}}, .inputs = {bytes}}));
        EXPECT_EQ(result.output(0), bytes) << t << " " << i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Plans(), 1);
}

TEST_F(SharePlanTest, LeavesNothingBehind) {
  {
    const Plan plan = EchoPlan();
    Must(plan.Run({.inputs = {Pattern(kBytes, 1)}}));
    EXPECT_EQ(Plans(), 1);
  }
  EXPECT_EQ(Plans(), 0);
  Plan deleted = EchoPlan();
  Must(deleted.Run({.inputs = {Pattern(kBytes, 1)}}));
  EXPECT_TRUE(deleted.Delete().ok());
  EXPECT_EQ(Plans(), 0);
  Plan kept = EchoPlan();
  Must(kept.Run({.inputs = {Pattern(kBytes, 1)}}));
  const client::Handle id = kept.Release();
  EXPECT_EQ(Plans(), 1);
  EXPECT_TRUE(session_.DeletePlan(id).ok());
}

TEST_F(SharePlanTest, ADeletedMemoryIsMadeAnew) {
  const Plan plan = EchoPlan();
  const std::string bytes = Pattern(kBytes, 1);
  Must(plan.Run({.inputs = {bytes}}));
  for (const v1::Buffer& one : Must(session_.ListBuffers())) {
    if (one.label() != "client inline data") continue;
    Must(session_.DeleteBuffers({Must(client::Handle::FromBytes(one.buffer_id()))}));
  }
  const client::Result meanwhile = Must(plan.Run({.inputs = {bytes}}));
  EXPECT_EQ(Ran(meanwhile), kByGrpc);
  EXPECT_EQ(meanwhile.output(0), bytes);
  EXPECT_EQ(Ran(Must(plan.Run({.inputs = {bytes}}))), kByShm);
  EXPECT_EQ(Plans(), 1);
}

class SharePlanQuotaTest : public SharePlanTest {
 protected:
  SharePlanQuotaTest()
      : SharePlanTest({.config = "tenants { name: \"default\" limits { max_plans: 2 } }"}) {}
};

TEST_F(SharePlanQuotaTest, TakesNoneOfTheCallersPlans) {
  const Plan first = EchoPlan();
  const Plan second = EchoPlan();
  const std::string bytes = Pattern(kBytes, 1);
  for (const Plan* plan : {&first, &second}) {
    const client::Result result = Must(plan->Run({.inputs = {bytes}}));
    EXPECT_EQ(Ran(result), kByShm);
    EXPECT_EQ(result.output(0), bytes);
  }
  EXPECT_EQ(session_.CreatePlan(Echo(buffer_, bytes)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

class SharePlanBytesQuotaTest : public SharePlanTest {
 protected:
  SharePlanBytesQuotaTest()
      : SharePlanTest({.config = "tenants { name: \"default\" limits { max_buffer_bytes: " +
                                 std::to_string(kBytes + (4 << 20)) + " } }"}) {}
};

TEST_F(SharePlanBytesQuotaTest, TheMemoryGivesWayToTheCallersBuffers) {
  const Plan plan = EchoPlan();
  const std::string bytes = Pattern(kBytes, 1);
  EXPECT_EQ(Ran(Must(plan.Run({.inputs = {bytes}}))), kByShm);
  client::Buffer large = Must(session_.CreateBuffer({.size_bytes = 4 << 20}));
  EXPECT_EQ(Staging(session_), 0);
  const client::Result result = Must(plan.Run({.inputs = {bytes}}));
  EXPECT_EQ(Ran(result), kByGrpc);
  EXPECT_EQ(result.output(0), bytes);
}

TEST_F(TwoDevicesTest, APlanOnTheOtherDeviceGoesByGrpc) {
  client::Buffer far = On(kFar, {kBytes}, client::DType::kI8);
  const Plan plan = Must(session_.CreatePlan(Echo(far, Pattern(kBytes))));
  for (int i = 1; i < 3; ++i) {
    const client::Result result = Must(plan.Run({.inputs = {Pattern(kBytes, i)}}));
    EXPECT_EQ(Ran(result), kByGrpc);
    EXPECT_EQ(result.output(0), Pattern(kBytes, i));
  }
}

}  // namespace
}  // namespace gemmd::e2e
