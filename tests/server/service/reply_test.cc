#include "server/service/wire/reply.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include <cstring>
#include <limits>

#include "gemmd/v1/compute_service.pb.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "server/service/wire/report.h"

namespace gemmd::server {
namespace {

using google::protobuf::util::MessageDifferencer;

class Steps final : public kernels::Program {
 public:
  explicit Steps(std::vector<Step> steps) : steps_(std::move(steps)) {}
  absl::Span<const Step> steps() const override { return steps_; }
  double estimated_seconds() const override { return 0; }

 private:
  const std::vector<Step> steps_;
};

kernels::Program::Step StepOf(std::string_view op, std::string_view kernel,
                              kernels::ChoiceReason reason, double flops, double bytes) {
  kernels::Program::Step step;
  step.op = op;
  step.dtype = kernels::DType::kF32;
  step.choice.kernel = kernel;
  step.choice.reason = reason;
  step.flops = flops;
  step.bytes = bytes;
  return step;
}

std::shared_ptr<Outcome> OutcomeOf(std::vector<kernels::Program::Step> steps,
                                   std::vector<float> seconds) {
  auto outcome = std::make_shared<Outcome>();
  outcome->program = std::make_shared<Steps>(std::move(steps));
  outcome->device = "cpu:0";
  outcome->result.queue_seconds = 1e-6;
  outcome->result.launch.device_seconds = 2e-3;
  outcome->result.launch.op_seconds = std::move(seconds);
  return outcome;
}

v1::ExecuteResponse Read(grpc::ByteBuffer bytes) {
  v1::ExecuteResponse response;
  EXPECT_TRUE(grpc::SerializationTraits<v1::ExecuteResponse>::Deserialize(&bytes, &response).ok());
  return response;
}

void ExpectReport(const std::shared_ptr<Outcome>& outcome) {
  for (const v1::ReportLevel level :
       {v1::REPORT_LEVEL_FULL, v1::REPORT_LEVEL_SUMMARY, v1::REPORT_LEVEL_NONE}) {
    const v1::ExecuteResponse response = Read(MakeReply(outcome, /*replayed=*/false, level));
    EXPECT_EQ(response.has_report(), level != v1::REPORT_LEVEL_NONE);
    EXPECT_FALSE(response.replayed());
    if (level == v1::REPORT_LEVEL_NONE) continue;
    v1::ProgramReport filled;
    FillReport(*outcome, level, &filled);
    EXPECT_TRUE(MessageDifferencer::Equals(response.report(), filled))
        << response.report().DebugString() << filled.DebugString();
    // As protobuf itself would write it, to the byte.
    EXPECT_EQ(response.SerializeAsString().size(), MakeReply(outcome, false, level).Length());
  }
}

TEST(ReplyTest, ReportsAreAsMessagesHaveThem) {
  const std::string long_name(300, 'k');
  ExpectReport(OutcomeOf({}, {}));
  ExpectReport(OutcomeOf(
      {StepOf("matmul", "sm90_fp8_tiled_m64n128s8_k2", kernels::ChoiceReason::kTable, 1e9, 1e6),
       StepOf("copy", "", kernels::ChoiceReason::kOnly, 0, -0.0),
       StepOf("matmul", long_name, kernels::ChoiceReason::kForced,
              std::numeric_limits<double>::infinity(), 1)},
      {1e-5f, 0}));
}

TEST(ReplyTest, AReportOfManyOpsIsWhole) {
  std::vector<kernels::Program::Step> steps;
  std::vector<float> seconds;
  for (int i = 0; i < 1000; ++i) {
    steps.push_back(StepOf("quantize", "cuda_quantize_1x128", kernels::ChoiceReason::kOnly, i, i));
    seconds.push_back(static_cast<float>(i));
  }
  ExpectReport(OutcomeOf(std::move(steps), std::move(seconds)));
}

TEST(ReplyTest, OutputsFollowTheReport) {
  auto outcome = OutcomeOf({}, {});
  for (const int64_t size : {0, 5, 1000}) {
    auto output = kernels::HeapMemory::Of(size);
    std::memset(output->span().data(), 'a', size);
    outcome->outputs.push_back(std::move(output));
  }
  const v1::ExecuteResponse response =
      Read(MakeReply(outcome, /*replayed=*/true, v1::REPORT_LEVEL_FULL));
  EXPECT_TRUE(response.replayed());
  EXPECT_EQ(response.report().device(), "cpu:0");
  ASSERT_EQ(response.outputs_size(), 3);
  EXPECT_EQ(response.outputs(0), "");
  EXPECT_EQ(response.outputs(1), "aaaaa");
  EXPECT_EQ(response.outputs(2), std::string(1000, 'a'));
}

}  // namespace
}  // namespace gemmd::server
