#include "kernels/cuda/tuning/model_correction.h"

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"

namespace gemmd::kernels::cuda {
namespace {

// `left` where the feature is at most the threshold, else `right`: a node of the same tree, or
// ~leaf.
struct Node {
  float threshold;
  uint8_t feature;
  int8_t left;
  int8_t right;
};
struct Tree {
  int first_node;
  int first_leaf;
};

// Each: kTrees, kNodes, and kLeaves in units of 1e-5.
namespace fp8 {
#include "kernels/cuda/tuning/model_correction_trees.inc"
}  // namespace fp8
namespace fp8_choice {
#include "kernels/cuda/tuning/model_correction_fp8_choice_trees.inc"
}  // namespace fp8_choice
namespace fp8_row {
#include "kernels/cuda/tuning/model_correction_fp8_row_trees.inc"
}  // namespace fp8_row
namespace i8_block {
#include "kernels/cuda/tuning/model_correction_i8_block_trees.inc"
}  // namespace i8_block
namespace direct {
#include "kernels/cuda/tuning/model_correction_direct_trees.inc"
}  // namespace direct
namespace float16 {
#include "kernels/cuda/tuning/model_correction_float16_trees.inc"
}  // namespace float16
namespace i8 {
#include "kernels/cuda/tuning/model_correction_i8_trees.inc"
}  // namespace i8
namespace stream {
#include "kernels/cuda/tuning/model_correction_stream_trees.inc"
}  // namespace stream
namespace fp8_stream {
#include "kernels/cuda/tuning/model_correction_fp8_stream_trees.inc"
}  // namespace fp8_stream
namespace fp8_narrow {
#include "kernels/cuda/tuning/model_correction_fp8_narrow_trees.inc"
}  // namespace fp8_narrow
namespace float16_narrow {
#include "kernels/cuda/tuning/model_correction_float16_narrow_trees.inc"
}  // namespace float16_narrow
namespace float16_batched {
#include "kernels/cuda/tuning/model_correction_float16_batched_trees.inc"
}  // namespace float16_batched
namespace i8_narrow {
#include "kernels/cuda/tuning/model_correction_i8_narrow_trees.inc"
}  // namespace i8_narrow
namespace i8_block_narrow {
#include "kernels/cuda/tuning/model_correction_i8_block_narrow_trees.inc"
}  // namespace i8_block_narrow

// Beyond these the other trees were fitted to few layers of models or none: there they missed the
// best kernel by 8 % on average, and by up to 200 %.
constexpr float kMostModelRows = 4096;
constexpr float kLeastModelColumns = 512, kLeastModelK = 512;

bool IsNarrow(const ModelFeatures& features) {
  return features[kRowsFeature] > kMostModelRows ||
         features[kColumnsFeature] < kLeastModelColumns || features[kKFeature] < kLeastModelK;
}

// Where FP8's trees for the choice gain: of weights left out of the fit 0.65 % of the time. With
// fewer rows or more they gain 0.1 %, no more than its error.
constexpr float kLeastChoiceRows = 129;
constexpr float kMostChoiceRows = 1100;
// Fewer wait for memory whatever their scales: chosen by the trees of E4M3 by row, too, they took
// 2 % longer.
constexpr float kLeastByRowRows = 65;

int SumOf(absl::Span<const Tree> trees, const Node* nodes, const int16_t* leaves,
          const ModelFeatures& features) {
  int sum = 0;
  for (const Tree& tree : trees) {
    int at = 0;
    while (at >= 0) {
      const Node& node = nodes[tree.first_node + at];
      at = features[node.feature] <= node.threshold ? node.left : node.right;
    }
    sum += leaves[tree.first_leaf + ~at];
  }
  return sum;
}

int NarrowSumOf(const ModelFeatures& features, Mma mma) {
  switch (mma) {
    case Mma::kFp8Block:
    case Mma::kFp8Row:
      return SumOf(fp8_narrow::kTrees, fp8_narrow::kNodes, fp8_narrow::kLeaves, features);
    case Mma::kI8:
      return SumOf(i8_narrow::kTrees, i8_narrow::kNodes, i8_narrow::kLeaves, features);
    case Mma::kI8Block:
      return SumOf(i8_block_narrow::kTrees, i8_block_narrow::kNodes, i8_block_narrow::kLeaves,
                   features);
    default:
      return SumOf(float16_narrow::kTrees, float16_narrow::kNodes, float16_narrow::kLeaves,
                   features);
  }
}

// Batches of 16-bit matrices have trees of their own: the others were fitted to single ones, whose
// tiles are few where the matrix is small, and missed the best kernel of batches by 8 %.
bool IsBatchOf16Bits(const ModelFeatures& features, Mma mma) {
  if (features[kBatchFeature] <= 1) return false;
  switch (mma) {
    case Mma::kFp8Block:
    case Mma::kFp8Row:
    case Mma::kI8:
    case Mma::kI8Block:
      return false;
    default:
      return true;
  }
}

int SumOf(const ModelFeatures& features, Mma mma) {
  if (mma == Mma::kF32) return 0;  // none are fitted to it
  if (IsBatchOf16Bits(features, mma)) {
    return SumOf(float16_batched::kTrees, float16_batched::kNodes, float16_batched::kLeaves,
                 features);
  }
  if (IsNarrow(features)) return NarrowSumOf(features, mma);
  const bool streams = features[kStreamsFeature] > 0;
  const float rows = features[kRowsFeature];
  switch (mma) {
    case Mma::kFp8Block:
    case Mma::kFp8Row: {
      const int sum =
          streams ? SumOf(fp8_stream::kTrees, fp8_stream::kNodes, fp8_stream::kLeaves, features)
                  : SumOf(fp8::kTrees, fp8::kNodes, fp8::kLeaves, features);
      if (mma == Mma::kFp8Row) {
        if (streams || rows < kLeastByRowRows) return sum;
        return sum + SumOf(fp8_row::kTrees, fp8_row::kNodes, fp8_row::kLeaves, features);
      }
      if (rows < kLeastChoiceRows || rows > kMostChoiceRows) return sum;
      return sum + SumOf(fp8_choice::kTrees, fp8_choice::kNodes, fp8_choice::kLeaves, features);
    }
    case Mma::kI8Block:
      return SumOf(i8_block::kTrees, i8_block::kNodes, i8_block::kLeaves, features);
    default:
      break;
  }
  if (streams) return SumOf(stream::kTrees, stream::kNodes, stream::kLeaves, features);
  const int sum = SumOf(direct::kTrees, direct::kNodes, direct::kLeaves, features);
  if (mma == Mma::kI8) return sum + SumOf(i8::kTrees, i8::kNodes, i8::kLeaves, features);
  return sum + SumOf(float16::kTrees, float16::kNodes, float16::kLeaves, features);
}

}  // namespace

float CorrectionOf(const ModelFeatures& features, Mma mma) {
  return std::clamp(static_cast<float>(SumOf(features, mma)) * 1e-5f, kLeastCorrection,
                    kMostCorrection);
}

}  // namespace gemmd::kernels::cuda
