#include "kernels/bench/summary.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/bench/statistics.h"

namespace gemmd::kernels::bench {
namespace {

struct Filter {
  const char* name;
  std::function<bool(const Shape&)> takes;
};

Group Average(const char* name, const std::vector<const ShapeResult*>& results) {
  std::vector<double> share, block, tensorwise, bf16, choice, model;
  const auto add = [](std::vector<double>& to, double over, double under) {
    if (over > 0 && under > 0) to.push_back(over / under);
  };
  for (const ShapeResult* r : results) {
    add(share, r->floor_us, r->us);
    add(block, r->cublaslt_block_us, r->us);
    add(tensorwise, r->cublaslt_tensorwise_us, r->us);
    add(bf16, r->cublaslt_bf16_us, r->us);
    if (!r->best.empty()) {
      add(choice, r->us, r->best.front().us);
      add(model, r->model_us, r->best.front().us);
    }
  }
  Group group;
  group.name = name;
  group.shapes = static_cast<int>(results.size());
  group.share_of_floor = Mean(share);
  group.block_ratio = GeometricMean(block);
  group.tensorwise_ratio = GeometricMean(tensorwise);
  group.bf16_ratio = GeometricMean(bf16);
  group.choice_ratio = GeometricMean(choice);
  group.model_ratio = GeometricMean(model);
  return group;
}

}  // namespace

Summary Summarize(const RunResult& run) {
  const Filter filters[] = {
      {"m<=128", [](const Shape& s) { return s.m <= 128; }},
      {"128<m<512", [](const Shape& s) { return s.m > 128 && s.m < 512; }},
      {"m=512", [](const Shape& s) { return s.m == 512; }},
      {"512<m<4096", [](const Shape& s) { return s.m > 512 && s.m < 4096; }},
      {"m>=4096", [](const Shape& s) { return s.m >= 4096; }},
      {"8192x8192x8192",
       [](const Shape& s) {
         return s == Shape{8192, 8192, 8192};
       }},
      {"all", [](const Shape&) { return true; }},
  };
  Summary summary;
  for (const ShapeResult& r : run.shapes) {
    if (r.cublaslt_tensorwise_us > 0) {
      summary.best_tensorwise_tflops = std::max(summary.best_tensorwise_tflops,
                                                r.shape.flops() / r.cublaslt_tensorwise_us * 1e-6);
    }
  }
  for (const Filter& filter : filters) {
    std::vector<const ShapeResult*> results;
    for (const ShapeResult& r : run.shapes) {
      if (r.outcome == Outcome::kOk && r.us > 0 && filter.takes(r.shape)) results.push_back(&r);
    }
    if (!results.empty()) summary.groups.push_back(Average(filter.name, results));
  }
  return summary;
}

double ShareOfFloor(const ShapeResult& result, double best_tensorwise_tflops) {
  if (result.us <= 0) return 0;
  const double compute_us =
      best_tensorwise_tflops > 0 ? result.shape.flops() / best_tensorwise_tflops * 1e-6 : 0;
  return std::max(result.floor_us, compute_us) / result.us;
}

}  // namespace gemmd::kernels::bench
