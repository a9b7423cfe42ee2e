// What a router may choose: the experts of each token, drawn from a seed.

#pragma once

#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

namespace gemmd::kernels::bench {

enum class Routing : uint8_t {
  kUniform,
  kZipf,      // the expert of rank r is wanted as 1 / (r + 1)
  kBalanced,  // every expert gets as many rows, as far as they go
  kOneHot,    // one expert gets every token, the others are wanted alike
};
std::string_view Name(Routing routing);

// top_k different experts for each token, the first token's first.
std::vector<int32_t> Route(Routing routing, int64_t tokens, int64_t top_k, int64_t experts,
                           std::mt19937_64& random);

}  // namespace gemmd::kernels::bench
