// Layers that no kernel was tuned for, drawn as the grouped matmuls of broad_cases.h.

#pragma once

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
