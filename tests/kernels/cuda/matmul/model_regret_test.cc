// The cost model's choice against times that were measured on an H200: kernels/bench/fit_model.py
// wrote the file from sweeps of the models that it fits to. What the model misses on the others is
// a GPU's to tell (docs/benchmarks/h200-fp8-models.md); this keeps a change from making it worse.

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cuda/matmul/selector.h"

namespace gemmd::kernels::cuda {
namespace {

struct Measured {
  int64_t m = 0, n = 0, k = 0;
  std::vector<std::pair<std::string, double>> times;  // kernel, microseconds; the fastest first
};

std::vector<Measured> ReadSample() {
  std::ifstream file(GEMMD_MODEL_SAMPLE);
  std::vector<Measured> sample;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "#")) continue;
    std::istringstream words(line);
    Measured shape;
    words >> shape.m >> shape.n >> shape.k;
    std::string kernel;
    double us = 0;
    while (words >> kernel >> us) shape.times.emplace_back(absl::StrCat("sm90_fp8_", kernel), us);
    sample.push_back(std::move(shape));
  }
  return sample;
}

MatmulProblem ProblemOf(const Measured& shape) {
  MatmulProblem problem;
  problem.m = shape.m;
  problem.n = shape.n;
  problem.k = shape.k;
  constexpr Layout kRows = Layout::kKContiguous;
  problem.a = {DType::kE4M3, ScaleGranularity::kBlock1x128, kRows, shape.k};
  problem.b = {DType::kE4M3, ScaleGranularity::kBlock128x128, kRows, shape.k};
  problem.d = {DType::kBF16, ScaleGranularity::kNone, kRows, shape.n};
  return problem;
}

// Those that it has times of: younger ones may be faster than all, and nobody knows.
std::vector<GemmVariant> VariantsOf(const std::vector<Measured>& sample) {
  std::set<GemmVariant> variants;
  for (const Measured& shape : sample) {
    for (const auto& [kernel, us] : shape.times) {
      const auto variant = FindVariant(kernel);
      if (variant.has_value()) variants.insert(*variant);
    }
  }
  return {variants.begin(), variants.end()};
}

// The chosen kernel's time over the best one's, less 1. One that is not among the fastest was
// slower than the last of them.
double RegretOf(const GemmSelector& selector, const Measured& shape) {
  const std::string chosen = Name(selector.Choose(ProblemOf(shape))->variant);
  double us = 1.1 * shape.times.back().second;
  for (const auto& [kernel, measured_us] : shape.times) {
    if (kernel == chosen) us = measured_us;
  }
  return us / shape.times.front().second - 1;
}

TEST(ModelRegretTest, TheModelAloneChoosesWhatIsFastOrNearlySo) {
  const std::vector<Measured> sample = ReadSample();
  ASSERT_GE(sample.size(), 100) << GEMMD_MODEL_SAMPLE;
  const GemmSelector selector({.model = "NVIDIA H200"}, VariantsOf(sample), {});
  std::vector<double> regrets;
  for (const Measured& shape : sample) {
    ASSERT_GE(shape.times.size(), 5) << shape.m << "x" << shape.n << "x" << shape.k;
    regrets.push_back(RegretOf(selector, shape));
  }
  std::sort(regrets.begin(), regrets.end());
  const double mean = std::accumulate(regrets.begin(), regrets.end(), 0.0) / regrets.size();
  RecordProperty("mean_regret_ppm", static_cast<int>(mean * 1e6));
  EXPECT_LT(mean, 0.015);
  EXPECT_LT(regrets[regrets.size() * 98 / 100], 0.10);
}

TEST(ModelRegretTest, EveryKernelOfTheSampleIsOfThisBuild) {
  for (const Measured& shape : ReadSample()) {
    for (const auto& [kernel, us] : shape.times) {
      EXPECT_TRUE(FindVariant(kernel).has_value()) << kernel;
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
