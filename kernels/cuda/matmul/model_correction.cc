#include "kernels/cuda/matmul/model_correction.h"

#include <algorithm>
#include <cstdint>

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

// kTrees, kNodes, and kLeaves in units of 1e-5.
#include "kernels/cuda/matmul/model_correction_trees.inc"

}  // namespace

float CorrectionOf(const ModelFeatures& features) {
  int sum = 0;
  for (const Tree& tree : kTrees) {
    int at = 0;
    while (at >= 0) {
      const Node& node = kNodes[tree.first_node + at];
      at = features[node.feature] <= node.threshold ? node.left : node.right;
    }
    sum += kLeaves[tree.first_leaf + ~at];
  }
  return std::clamp(static_cast<float>(sum) * 1e-5f, kLeastCorrection, kMostCorrection);
}

}  // namespace gemmd::kernels::cuda
