#include "kernels/bench/cuda/grouped/broad_layers.h"

#include "kernels/bench/cuda/grouped/broad_draw.h"

namespace gemmd::kernels::bench {

std::vector<LayerCase> BroadLayers(Half half, int count, uint64_t seed) {
  std::vector<LayerCase> layers;
  Draw draw(half, seed);
  while (std::ssize(layers) < count) {
    const Experts& model = draw.Model();
    layers.push_back({.tokens = draw.Tokens(static_cast<int>(layers.size())),
                      .top_k = model.top_k,
                      .experts = model.experts,
                      .hidden = model.hidden,
                      .inner = model.inner,
                      .routing = draw.AnyRouting()});
  }
  return layers;
}

std::vector<GateCase> BroadGates(Half half, int count, uint64_t seed) {
  constexpr int64_t kGateColumns = 128;
  std::vector<GateCase> gates;
  std::mt19937_64 random(seed);
  for (const LayerCase& layer : BroadLayers(half, count, seed)) {
    if (layer.inner % kGateColumns != 0) continue;
    const auto ids = Route(layer.routing, layer.tokens, layer.top_k, layer.experts, random);
    gates.push_back({layer.name(), LocalRows(ids, layer.experts), 2 * layer.inner, layer.hidden});
  }
  return gates;
}

}  // namespace gemmd::kernels::bench
