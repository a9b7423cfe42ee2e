// Named lists of shapes: what to run, in one word.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/bench/shape.h"

namespace gemmd::kernels::bench {

// The shapes everyone measures: m {1, 16, 64, 128, 512, 4096} by seven layers of large models, and
// two large ones.
std::vector<Shape> Dense44();

// `count` shapes drawn from `seed`: m log-uniform in 1..8192, n and k log-uniform multiples of 16
// up to 8192, a shape at most 2^37 flops, so that 300 run in seconds.
std::vector<Shape> RandomShapes(int count, uint64_t seed);

// Edges that break kernels: tile sizes and their neighbours, primes, a vocabulary, k of one block,
// and k that TMA cannot take.
std::vector<Shape> OddShapes();

// Of the ladder: 4096 cubed, and half and twice of it.
std::vector<Shape> LadderShapes();

// "dense44", "ladder", "random", "odd", "broad-fit", "broad-judge", "narrow-fit" and
// "narrow-judge", or of models.h "models", "models-fit", "models-judge" and, with the weights that
// are no multiples of 128, "models-odd", "models-odd-fit", "models-odd-judge". `count` and `seed`
// are those of suites that are drawn: random, broad, narrow and the models'. INVALID_ARGUMENT, with
// the names, for another.
absl::StatusOr<std::vector<Shape>> Suite(std::string_view name, int count, uint64_t seed);

// "64x4096x7168,1x576x7168". INVALID_ARGUMENT, with the part, when it is not MxNxK of sizes from 0
// to 2^31.
absl::StatusOr<std::vector<Shape>> ParseShapes(std::string_view text);

}  // namespace gemmd::kernels::bench
