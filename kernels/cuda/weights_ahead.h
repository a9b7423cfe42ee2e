// WeightsAhead: the weights that a matmul reads first, for a kernel in front of it to ask L2 for.
//
// A quantisation that was launched under the end of another kernel waits for that one, and memory
// has nothing else to do meanwhile. What a matmul finds in L2 then is time saved where memory is
// what it waits for, and lost everywhere else: the quantisation's own rows come behind it.

#ifndef GEMMD_KERNELS_CUDA_WEIGHTS_AHEAD_H_
#define GEMMD_KERNELS_CUDA_WEIGHTS_AHEAD_H_

#include <cstdint>

namespace gemmd::kernels::cuda {

struct GemmLaunch;
struct GemmVariant;

// Blocks are 128 of k: a line of L2.
struct WeightsAhead {
  const uint8_t* b = nullptr;  // [n, k] in FP8
  int64_t ldb = 0;
  int rows = 0;    // of n, from the first on
  int blocks = 0;  // of each row, from where each part of k begins
  // Parts of k, as KSplit has them, but in blocks: part p begins at p * step + min(p, extra) *
  // longer.
  int parts = 1;
  int step = 0;
  int extra = 0;
  int longer = 0;

  constexpr int lines() const { return parts * rows * blocks; }
  // Line `i` below lines(): neighbours in a row are neighbours in `i`.
  constexpr const uint8_t* Line(int i) const {
    const int run = i / blocks;
    const int part = run / rows;
    const int block = part * step + (part < extra ? part : extra) * longer + (i - run * blocks);
    return b + (run - part * rows) * ldb + int64_t{block} * 128;
  }
};

// For a launch of `variant`: none (no lines) unless every part of B is read once, by few rows of A,
// and B is so large that memory decides how long that takes.
WeightsAhead AheadOf(const GemmVariant& variant, const GemmLaunch& launch);

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_WEIGHTS_AHEAD_H_
