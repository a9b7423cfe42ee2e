// What the rates of model.h miss of a kernel's time: regression trees over what they know of kernel
// and problem, fitted to measured times by kernels/bench/fit_model.py. Nothing but comparisons of
// the same numbers: the same answer everywhere.

#pragma once

#include <array>
#include <cstddef>

#include "kernels/cuda/sm90/gemm_config.h"

namespace gemmd::kernels::cuda {

// In the order of ModelFeatures. `rough_us` is RoughSeconds; "at once" are the clusters that the
// device runs side by side; shares are of tiles that reach beyond the matrix, or of `rough_us`.
inline constexpr const char* kModelFeatureNames[] = {
    "rough_us",
    "split",
    "groups_over_at_once",
    "waves",
    "last_wave",
    "k_blocks",
    "m",
    "n",
    "k",
    "rows",
    "cols",
    "cluster",
    "ctas_over_sms",
    "m_share",
    "flops_per_byte",
    "stage_blocks",
    "stages",
    "multicast",
    "k_groups",
    "ctas_per_sm",
    "skinny",
    "stores_tile",
    "share_cols",
    "memory_share",
    "math_share",
    "n_share",
    "streams_k",
    "batch",
    "along_rows",
};
inline constexpr size_t kModelFeatureCount = std::size(kModelFeatureNames);
inline constexpr size_t kRowsFeature = 6;     // m
inline constexpr size_t kColumnsFeature = 7;  // n
inline constexpr size_t kKFeature = 8;
inline constexpr size_t kStreamsFeature = 26;
inline constexpr size_t kBatchFeature = 27;
using ModelFeatures = std::array<float, kModelFeatureCount>;

// The natural logarithm of the time over the rough one, within kLeastCorrection and
// kMostCorrection: a kernel unlike all that were measured is not taken or left for it alone.
inline constexpr float kLeastCorrection = -0.45f;
inline constexpr float kMostCorrection = 0.6f;
// FP8's kernels have trees of their own, as have INT8's with block scales and those of stream-k, of
// FP8 and of 16 bits; BF16, FP16 and INT8 share. Others on top are fitted to what those miss:
// FP8's with block scales and by row for some numbers of rows, BF16's with FP16's, and INT8's. Few
// columns, few k and more rows than models' layers have are judged by other trees, as FP8, INT8
// with block scales, INT8 and 16 bits have them.
float CorrectionOf(const ModelFeatures& features, Mma mma);

}  // namespace gemmd::kernels::cuda
