#include "server/engine/observe/lane_metrics.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/histogram.h"
#include "server/engine/observe/time_counts.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class StepsProgram final : public kernels::Program {
 public:
  explicit StepsProgram(std::vector<Step> steps) : steps_(std::move(steps)) {}
  absl::Span<const Step> steps() const override { return steps_; }
  double estimated_seconds() const override { return 1e-3; }

 private:
  const std::vector<Step> steps_;
};

// quantize, matmul, quantize, matmul, ..., the last matmul by another kernel and as a fallback.
std::vector<kernels::Program::Step> Steps() {
  using kernels::ChoiceReason;
  std::vector<kernels::Program::Step> steps;
  for (int i = 0; i < 3; ++i) {
    steps.push_back({"quantize", kernels::DType::kE4M3, {"q", ChoiceReason::kOnly}, 0, 64});
    steps.push_back({"matmul", kernels::DType::kE4M3, {"mm", ChoiceReason::kTable}, 100, 64});
  }
  steps.back().choice = {"any", ChoiceReason::kFallback};
  return steps;
}

class LaneMetricsTest : public ::testing::Test {
 protected:
  std::string Complete(absl::Status status, std::vector<float> op_seconds) {
    Job job;
    job.program = std::make_shared<StepsProgram>(Steps());
    job.tenant = &tenant_;
    JobResult result;
    result.status = std::move(status);
    result.launch.device_seconds = 1e-3;
    result.launch.op_seconds = std::move(op_seconds);
    lane_.Completed(job, result);
    return metrics_.Text();
  }
  static std::string Ops(const char* op, const char* kernel, const char* status, int count) {
    return absl::StrCat("gemmd_ops_total{device=\"d\",dtype=\"e4m3\",kernel=\"", kernel, "\",op=\"",
                        op, "\",status=\"", status, "\"} ", count, "\n");
  }
  static std::string Seconds(const char* what, const char* kernel, const char* bound, int count) {
    return absl::StrCat("gemmd_device_seconds_", what, "{device=\"d\",kernel=\"", kernel, "\"",
                        bound, "} ", count, "\n");
  }

  Metrics metrics_{"test"};
  Tenant tenant_{0, {.name = "red"}};
  LaneMetrics lane_{metrics_, "d", LaneKind::kPrograms};
};

TEST_F(LaneMetricsTest, StepsOfAProgramAreCountedByTheirKind) {
  const std::string text = Complete(absl::OkStatus(), {4e-6f, 9e-6f, 4e-6f, 30e-6f, 6e-6f, 50e-6f});
  EXPECT_THAT(text, HasSubstr(Ops("quantize", "q", "ok", 3)));
  EXPECT_THAT(text, HasSubstr(Ops("matmul", "mm", "ok", 2)));
  EXPECT_THAT(text, HasSubstr(Ops("matmul", "any", "ok", 1)));
  EXPECT_THAT(text, HasSubstr("gemmd_flops_total{device=\"d\",dtype=\"e4m3\"} 300\n"));
  EXPECT_THAT(text, HasSubstr("gemmd_kernel_fallback_total{reason=\"no_better_kernel\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(Seconds("bucket", "q", ",le=\"5e-06\"", 2)));
  EXPECT_THAT(text, HasSubstr(Seconds("count", "q", "", 3)));
  EXPECT_THAT(text, HasSubstr(Seconds("bucket", "mm", ",le=\"1e-05\"", 1)));
  EXPECT_THAT(text, HasSubstr(Seconds("count", "mm", "", 2)));
  EXPECT_THAT(text, HasSubstr(Seconds("count", "any", "", 1)));
}

TEST_F(LaneMetricsTest, AFailedProgramsStepsHaveNoTimesAndNoFlops) {
  const std::string text = Complete(absl::InternalError("fault"), {});
  EXPECT_THAT(text, HasSubstr(Ops("quantize", "q", "failed", 3)));
  EXPECT_THAT(text, HasSubstr(Ops("matmul", "mm", "failed", 2)));
  EXPECT_THAT(text, HasSubstr(Seconds("count", "q", "", 0)));
  EXPECT_THAT(text, Not(HasSubstr("gemmd_flops_total{device=\"d\",dtype=\"e4m3\"} 3")));
}

TEST(TimeCountsTest, CountsAsTheHistogramWouldValueByValue) {
  prometheus::Histogram each(TimeBuckets()), at_once(TimeBuckets());
  TimeCounts counts;
  std::vector<double> values = {0, 1e-9, 1e3, 1e3, 0};
  for (double bound : TimeBuckets()) {
    for (double value : {bound, std::nextafter(bound, 0.0), std::nextafter(bound, 1e9)}) {
      values.insert(values.end(), {value, value, 3e-5});
    }
  }
  for (double value : values) {
    each.Observe(value);
    counts.Add(value);
  }
  counts.AddTo(at_once);
  const auto expected = each.Collect().histogram, seen = at_once.Collect().histogram;
  EXPECT_EQ(seen.sample_count, values.size());
  EXPECT_NEAR(seen.sample_sum, expected.sample_sum, 1e-9 * expected.sample_sum);
  ASSERT_EQ(seen.bucket.size(), expected.bucket.size());
  for (size_t i = 0; i < seen.bucket.size(); ++i) {
    EXPECT_EQ(seen.bucket[i].cumulative_count, expected.bucket[i].cumulative_count) << i;
  }
}

TEST(TimeCountsTest, OneValueIsObservedAndNoneIsNothing) {
  prometheus::Histogram histogram(TimeBuckets());
  TimeCounts counts;
  counts.AddTo(histogram);
  EXPECT_EQ(histogram.Collect().histogram.sample_count, 0);
  counts.Add(1e-4);
  counts.AddTo(histogram);
  EXPECT_EQ(histogram.Collect().histogram.sample_count, 1);
  EXPECT_DOUBLE_EQ(histogram.Collect().histogram.sample_sum, 1e-4);
}

}  // namespace
}  // namespace gemmd::server
