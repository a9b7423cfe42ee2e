// Layers that no kernel was tuned for, drawn as the grouped matmuls of broad_cases.h.

#ifndef GEMMD_KERNELS_BENCH_CUDA_GROUPED_BROAD_LAYERS_H_
#define GEMMD_KERNELS_BENCH_CUDA_GROUPED_BROAD_LAYERS_H_

#include <cstdint>
#include <vector>

#include "kernels/bench/cuda/grouped/layer_workload.h"
#include "kernels/bench/cuda/grouped/moe_cases.h"
#include "kernels/bench/models.h"

namespace gemmd::kernels::bench {

// Whole layers, all experts on one GPU.
std::vector<LayerCase> BroadLayers(Half half, int count, uint64_t seed);

// The first matmuls of these layers whose gate a matmul's kernel can apply.
std::vector<GateCase> BroadGates(Half half, int count, uint64_t seed);

}  // namespace gemmd::kernels::bench

#endif  // GEMMD_KERNELS_BENCH_CUDA_GROUPED_BROAD_LAYERS_H_
