#include "kernels/shape_trial.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/tunable_backend.h"

namespace gemmd::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

constexpr TuneShape kShape = {.m = 8, .n = 64, .k = 256};

// A device whose multiplications take what the test says, one after the other.
class ScriptedRuns {
 public:
  explicit ScriptedRuns(std::vector<float> seconds) : seconds_(std::move(seconds)) {}

  absl::StatusOr<LaunchResult> operator()(std::shared_ptr<const Program> program, Bindings) const {
    if (fails_at == runs_) return absl::CancelledError("the caller went away");
    LaunchResult result;
    result.ops_timed = timed;
    ++runs_;
    for (size_t i = 0; i < program->steps().size(); i += 2) {
      result.op_seconds.push_back(1);  // fills take long
      result.op_seconds.push_back(seconds_[matmuls_++ % seconds_.size()]);
    }
    result.device_seconds = 1;
    return result;
  }
  size_t runs() const { return runs_; }
  size_t matmuls() const { return matmuls_; }

  bool timed = true;
  std::optional<size_t> fails_at;

 private:
  const std::vector<float> seconds_;
  mutable size_t runs_ = 0;  // a FunctionRef calls what is const
  mutable size_t matmuls_ = 0;
};

// A device on which each kernel takes what the test says of it and of the round.
class RunsByKernel {
 public:
  using Seconds = std::function<float(const std::string& kernel, int round)>;

  RunsByKernel(const FakeTuner& tuner, Seconds seconds)
      : tuner_(tuner), seconds_(std::move(seconds)) {}

  absl::StatusOr<LaunchResult> operator()(std::shared_ptr<const Program>, Bindings) const {
    LaunchResult result;
    result.ops_timed = true;
    result.device_seconds = 1;
    for (const std::string& kernel : tuner_.last_trial()) {
      result.op_seconds.push_back(1);
      result.op_seconds.push_back(seconds_(kernel, rounds_[kernel]++));
      order_.push_back(kernel);
    }
    return result;
  }
  const std::vector<std::string>& order() const { return order_; }  // of all that ran
  int rounds(const std::string& kernel) const { return rounds_[kernel]; }

 private:
  const FakeTuner& tuner_;
  const Seconds seconds_;
  mutable std::map<std::string, int> rounds_;  // a FunctionRef calls what is const
  mutable std::vector<std::string> order_;
};

TEST(ShapeTrialTest, KernelsTakeTurnsInAnotherOrderEachRound) {
  TunableBackend backend;
  RunsByKernel runs(*backend.tuner(), [](const std::string&, int) { return 20.1e-6f; });
  ASSERT_TRUE(TuneOneShape(backend, kShape, {}, runs).ok());
  ASSERT_THAT(runs.order(), SizeIs(3 * 51));
  std::set<std::vector<std::string>> orders;
  for (size_t i = 0; i < runs.order().size(); i += 3) {
    const std::vector<std::string> round(runs.order().begin() + i, runs.order().begin() + i + 3);
    EXPECT_EQ(std::set<std::string>(round.begin(), round.end()).size(), 3) << "in round " << i / 3;
    orders.insert(round);
  }
  EXPECT_GT(orders.size(), 2);
  EXPECT_EQ(std::adjacent_find(runs.order().begin(), runs.order().end()), runs.order().end())
      << "a kernel that follows itself finds its code in the caches";
}

TEST(ShapeTrialTest, ATimeIsTheMedianOfTheRounds) {
  TunableBackend backend;
  // Disturbed in every third round, and once faster than it can be.
  RunsByKernel runs(*backend.tuner(), [](const std::string& kernel, int round) {
    if (kernel != "fake_wide") return 21e-6f;
    return round == 4 ? 5e-6f : round % 3 == 2 ? 80e-6f : 20e-6f;
  });
  const auto tuned = TuneOneShape(backend, kShape, {}, runs);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(tuned->times[0].kernel, "fake_wide");
  EXPECT_NEAR(tuned->times[0].seconds, 20e-6, 1e-9);
}

TEST(ShapeTrialTest, NearTiesGetTheRounds) {
  TunableBackend backend;
  RunsByKernel runs(*backend.tuner(), [](const std::string& kernel, int) {
    return kernel == "fake_model" ? 10.1e-6f : kernel == "fake_wide" ? 10.2e-6f : 11.1e-6f;
  });
  ASSERT_TRUE(TuneOneShape(backend, kShape, {}, runs).ok());
  EXPECT_EQ(runs.rounds("fake_model"), 1 + 96);
  EXPECT_EQ(runs.rounds("fake_wide"), 1 + 96);
  EXPECT_EQ(runs.rounds("fake_split"), 1 + 10) << "a microsecond behind: no chance by then";
}

TEST(ShapeTrialTest, AKernelAloneInFrontIsMeasuredNoMore) {
  TunableBackend backend;
  RunsByKernel runs(*backend.tuner(), [](const std::string& kernel, int) {
    return kernel == "fake_wide" ? 10e-6f : 20e-6f;
  });
  ASSERT_TRUE(TuneOneShape(backend, kShape, {}, runs).ok());
  EXPECT_THAT(runs.order(), SizeIs(6));
}

TEST(ShapeTrialTest, AKernelsFirstRunDoesNotCount) {
  TunableBackend backend;
  RunsByKernel runs(*backend.tuner(), [](const std::string& kernel, int round) {
    return round == 0 && kernel == "fake_wide" ? 1e-3f : kernel == "fake_wide" ? 10e-6f : 20e-6f;
  });
  const auto tuned = TuneOneShape(backend, kShape, {}, runs);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(tuned->times[0].kernel, "fake_wide");
  EXPECT_NEAR(tuned->times[0].seconds, 10e-6, 1e-9);
}

TEST(ShapeTrialTest, RanksKernelsByTheTimesOfTheirMatmuls) {
  TunableBackend backend;
  RunsByKernel runs(*backend.tuner(), [](const std::string& kernel, int) {
    return kernel == "fake_model" ? 3e-6f : kernel == "fake_wide" ? 1e-6f : 2e-6f;
  });
  const auto tuned = TuneOneShape(backend, kShape, {.rounds = 1, .most_rounds = 1}, runs);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  ASSERT_THAT(tuned->times, SizeIs(3));
  EXPECT_EQ(tuned->times[0].kernel, "fake_wide");
  EXPECT_NEAR(tuned->times[0].seconds, 1e-6, 1e-9);
  EXPECT_EQ(tuned->times[2].kernel, "fake_model");
  EXPECT_EQ(tuned->before, "fake_model");
  EXPECT_EQ(tuned->reason_before, ChoiceReason::kModel);
  EXPECT_NEAR(tuned->seconds_before, 3e-6, 1e-9);
  EXPECT_THAT(runs.order(), SizeIs(2 * 3));
  EXPECT_EQ(tuned->device_seconds, 2) << "kernels take turns within one program";
}

TEST(ShapeTrialTest, MeasuresOnlyThoseNearTheFastestAgain) {
  TunableBackend backend;
  ScriptedRuns runs({9e-6f, 1e-6f, 1.1e-6f});
  const auto tuned = TuneOneShape(backend, kShape, {.rounds = 2, .most_rounds = 2}, runs);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(runs.matmuls(), 3 + 3 + 2);
}

TEST(ShapeTrialTest, MeasuresBriefKernelsMoreOften) {
  TunableBackend backend;
  ScriptedRuns brief({10.1e-6f}), longer({201e-6f});
  ASSERT_TRUE(TuneOneShape(backend, kShape, {}, brief).ok());
  EXPECT_EQ(brief.matmuls(), 3 * 97);
  ASSERT_TRUE(TuneOneShape(backend, kShape, {}, longer).ok());
  EXPECT_EQ(longer.matmuls(), 3 * 6);
}

TEST(ShapeTrialTest, AProgramIsAboutAsLongAsItMayBe) {
  TunableBackend backend;
  ScriptedRuns runs({1e-6f});
  ASSERT_TRUE(
      TuneOneShape(backend, kShape, {.rounds = 1, .most_rounds = 1, .program_seconds = 1e-9}, runs)
          .ok());
  EXPECT_EQ(runs.runs(), 6);
  EXPECT_EQ(runs.matmuls(), 6);
}

TEST(ShapeTrialTest, EndsWithWhatTheCallerSays) {
  TunableBackend backend;
  ScriptedRuns runs({1e-6f});
  runs.fails_at = 2;
  EXPECT_EQ(TuneOneShape(backend, kShape, {}, runs).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(runs.runs(), 2);
}

TEST(ShapeTrialTest, ReallyMultipliesOnTheBackend) {
  TunableBackend backend;
  const auto stream = backend.CreateStream({});
  const auto run = [&](std::shared_ptr<const Program> program,
                       Bindings bindings) -> absl::StatusOr<LaunchResult> {
    LaunchResult result;
    absl::Notification done;
    stream->Launch(std::move(program), std::move(bindings), [&](LaunchResult launched) {
      result = std::move(launched);
      done.Notify();
    });
    done.WaitForNotification();
    if (!result.status.ok()) return result.status;
    return result;
  };
  const auto tuned = TuneOneShape(backend, kShape, {}, run);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_THAT(tuned->times, SizeIs(3));
  for (const KernelTime& time : tuned->times) EXPECT_GT(time.seconds, 0) << time.kernel;
}

TEST(ShapeTrialTest, RefusesWhatCannotBeMeasuredAndSaysWhy) {
  TunableBackend backend;
  const auto refusal = [&](TuneShape shape, TuneOptions options = {}) {
    ScriptedRuns runs({1e-6f});
    const absl::Status status = TuneOneShape(backend, shape, options, runs).status();
    EXPECT_EQ(runs.runs(), 0);
    return std::string(absl::StatusCodeToString(status.code())) + ": " +
           std::string(status.message());
  };
  EXPECT_THAT(refusal({.m = 0, .n = 64, .k = 256}),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("m=0"), HasSubstr("1 to 16384")));
  EXPECT_THAT(refusal({.m = 1, .n = int64_t{1} << 40, .k = 256}), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(refusal({.m = 1, .n = 64, .k = 256, .out = DType::kE4M3}),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("bf16")));
  EXPECT_THAT(refusal({.m = 1, .n = 63, .k = 256}), HasSubstr("UNIMPLEMENTED"));
  EXPECT_THAT(refusal(kShape, {.max_memory_bytes = 1 << 16}),
              AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("limit 65536")));
  backend.full = true;
  EXPECT_THAT(refusal(kShape), AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("no memory")));
  const auto cpu = *CreateCpuBackend({.name = "cpu:3", .threads = 1});
  ScriptedRuns runs({1e-6f});
  const absl::Status none = TuneOneShape(*cpu, kShape, {}, runs).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(none.message()), HasSubstr("cpu:3"));
}

TEST(ShapeTrialTest, ADeviceThatTimesNothingIsNotBelieved) {
  TunableBackend backend;
  ScriptedRuns runs({1e-6f});
  runs.timed = false;
  EXPECT_EQ(TuneOneShape(backend, kShape, {}, runs).status().code(), absl::StatusCode::kInternal);
}

TEST(TuneShapeTest, RowsShareABucketOfLessThanTwiceAsMany) {
  EXPECT_EQ(RowBucket(0), 0);
  for (const auto& [rows, bucket] : std::map<int64_t, int64_t>{{1, 1},
                                                               {3, 4},
                                                               {17, 24},
                                                               {64, 64},
                                                               {65, 96},
                                                               {4097, 6144},
                                                               {16384, 16384},
                                                               {16385, 0}}) {
    EXPECT_EQ(RowBucket(rows), bucket) << rows;
  }
  EXPECT_EQ(UsualRowBuckets().back(), 4096);
}

}  // namespace
}  // namespace gemmd::kernels
