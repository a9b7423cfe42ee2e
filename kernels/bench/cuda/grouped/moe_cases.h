// What moe_bench measures.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/bench/cuda/grouped/layer_workload.h"

namespace gemmd::kernels::bench {

struct GateCase {
  std::string name;
  std::vector<int64_t> rows;
  int64_t n = 0, k = 0;
  double wanted_ratio = 0;  // of the matmul alone
};

// Random sizes are drawn from `seed`.
std::vector<GateCase> GateCases(uint64_t seed);

std::vector<LayerCase> LayerCases();

struct DenseCase {
  int64_t m, n, k;
  double wanted_ratio = 0;  // of the matmul alone; 0: none
};
inline constexpr DenseCase kDenseCases[] = {
    {16, 28672, 4096, 1.05}, {64, 28672, 4096, 0}, {4096, 28672, 4096, 0}};

}  // namespace gemmd::kernels::bench
