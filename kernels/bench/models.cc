#include "kernels/bench/models.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <set>
#include <utility>

namespace gemmd::kernels::bench {
namespace {

constexpr double kMaxFlops = 1099511627776.0;  // 2^40
constexpr int kRanks[] = {1, 2, 4, 8};

// A model's published config. `inner` is the feed-forward's width, an expert's where it has
// experts.
struct Config {
  int64_t hidden, inner, heads, kv_heads, head_dim;
  bool gated = true;  // two matrices of `inner` rows, multiplied as one
};

std::vector<Layer> FeedForward(int64_t hidden, int64_t inner, bool gated = true) {
  return {{gated ? "gate_up" : "up", (gated ? 2 : 1) * inner, hidden},
          {"down", hidden, inner, /*divides_k=*/true}};
}

std::vector<Layer> LayersOf(const Config& c) {
  std::vector<Layer> layers = {{"qkv", (c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden},
                               {"o", c.hidden, c.heads * c.head_dim, /*divides_k=*/true}};
  for (const Layer& layer : FeedForward(c.hidden, c.inner, c.gated)) layers.push_back(layer);
  return layers;
}

std::vector<Layer> With(std::vector<Layer> layers, const std::vector<Layer>& more) {
  layers.insert(layers.end(), more.begin(), more.end());
  return layers;
}

// Attention through a latent vector (DeepSeek): `q_rank` 0 where the queries have none.
std::vector<Layer> Latent(int64_t hidden, int64_t heads, int64_t q_rank) {
  constexpr int64_t kKvRank = 512, kRope = 64, kHead = 128;
  const int64_t q = heads * (kHead + kRope);
  std::vector<Layer> layers = {{"kv_b", heads * 2 * kHead, kKvRank},
                               {"o", hidden, heads * kHead, /*divides_k=*/true}};
  if (q_rank == 0) {
    return With(std::move(layers), {{"q", q, hidden}, {"kv_a", kKvRank + kRope, hidden}});
  }
  return With(std::move(layers),
              {{"q_a_kv_a", q_rank + kKvRank + kRope, hidden}, {"q_b", q, q_rank}});
}

std::vector<Model> MakeModels() {
  constexpr Half kFit = Half::kFit;
  constexpr Half kJudge = Half::kJudge;
  const auto model = [](std::string_view name, Half half, Config config) {
    return Model{name, half, LayersOf(config)};
  };
  return {
      // hidden, inner, heads, KV heads, head
      model("Llama-2-7B", kFit, {4096, 11008, 32, 32, 128}),
      model("Llama-2-13B", kJudge, {5120, 13824, 40, 40, 128}),
      model("Llama-3.1-70B", kFit, {8192, 28672, 64, 8, 128}),
      model("Llama-3.1-8B", kJudge, {4096, 14336, 32, 8, 128}),
      model("Llama-3.1-405B", kJudge, {16384, 53248, 128, 8, 128}),
      model("Llama-3.2-1B", kJudge, {2048, 8192, 32, 8, 64}),
      model("Llama-3.2-3B", kFit, {3072, 8192, 24, 8, 128}),
      {"Llama-4-Scout", kFit, With(LayersOf({5120, 8192, 40, 8, 128}), FeedForward(5120, 16384))},
      model("Mistral-Nemo-12B", kFit, {5120, 14336, 32, 8, 128}),
      model("Mistral-Small-24B", kJudge, {5120, 32768, 32, 8, 128}),
      model("Mistral-Large-2", kFit, {12288, 28672, 96, 8, 128}),
      model("Mixtral-8x22B", kJudge, {6144, 16384, 48, 8, 128}),
      model("Qwen2.5-1.5B", kFit, {1536, 8960, 12, 2, 128}),
      model("Qwen2.5-3B", kJudge, {2048, 11008, 16, 2, 128}),
      model("Qwen2.5-7B", kJudge, {3584, 18944, 28, 4, 128}),
      model("Qwen2.5-32B", kFit, {5120, 27648, 40, 8, 128}),
      model("Qwen2.5-72B", kJudge, {8192, 29568, 64, 8, 128}),
      model("Qwen3-4B", kFit, {2560, 9728, 32, 8, 128}),
      model("Qwen3-8B", kJudge, {4096, 12288, 32, 8, 128}),
      model("Qwen3-14B", kFit, {5120, 17408, 40, 8, 128}),
      model("Qwen3-32B", kJudge, {5120, 25600, 64, 8, 128}),
      model("Qwen3-30B-A3B", kFit, {2048, 768, 32, 4, 128}),
      model("Qwen3-235B-A22B", kJudge, {4096, 1536, 64, 4, 128}),
      {"DeepSeek-V2-Lite", kJudge,
       With(Latent(2048, 16, 0), With(FeedForward(2048, 1408), FeedForward(2048, 10944)))},
      {"DeepSeek-V2", kJudge,
       With(Latent(5120, 128, 1536), With(FeedForward(5120, 1536), FeedForward(5120, 12288)))},
      {"DeepSeek-V3", kFit,
       With(Latent(7168, 128, 1536), With(FeedForward(7168, 2048), FeedForward(7168, 18432)))},
      {"Kimi-K2", kJudge,
       With(Latent(7168, 64, 1536), With(FeedForward(7168, 2048), FeedForward(7168, 18432)))},
      model("Gemma-2-9B", kFit, {3584, 14336, 16, 8, 256}),
      model("Gemma-2-27B", kJudge, {4608, 36864, 32, 16, 128}),
      model("Gemma-3-12B", kJudge, {3840, 15360, 16, 8, 256}),
      model("Gemma-3-27B", kFit, {5376, 21504, 32, 16, 128}),
      model("Phi-3-mini", kFit, {3072, 8192, 32, 32, 96}),
      model("Phi-4", kJudge, {5120, 17920, 40, 10, 128}),
      model("Falcon-40B", kFit, {8192, 32768, 128, 8, 64, false}),
      model("Falcon-7B", kFit, {4544, 18176, 71, 1, 64, false}),
      model("Falcon3-10B", kJudge, {3072, 23040, 12, 4, 256}),
      model("GPT-OSS-120B", kJudge, {2880, 2880, 64, 8, 64}),
      model("Yi-34B", kFit, {7168, 20480, 56, 8, 128}),
      model("Command-R-35B", kJudge, {8192, 22528, 64, 64, 128}),
      model("Command-R-Plus", kFit, {12288, 33792, 96, 8, 128}),
      model("GLM-4-9B", kFit, {4096, 13696, 32, 2, 128}),
      model("GLM-4-32B", kJudge, {6144, 23040, 48, 2, 128}),
      {"GLM-4.5-Air", kFit, With(LayersOf({4096, 1408, 96, 8, 128}), FeedForward(4096, 10944))},
      model("Granite-3.1-8B", kFit, {4096, 12800, 32, 8, 128}),
      model("Nemotron-4-15B", kFit, {6144, 24576, 48, 8, 128, false}),
      model("StarCoder2-7B", kJudge, {4608, 18432, 36, 4, 128, false}),
      model("Baichuan2-13B", kJudge, {5120, 13696, 40, 40, 128}),
      model("MiniCPM-2B", kFit, {2304, 5760, 36, 36, 64}),
      model("DBRX", kFit, {6144, 10752, 48, 8, 128}),
      model("Grok-1", kJudge, {6144, 32768, 48, 8, 128}),
  };
}

// Adds the layer's weights on each number of ranks that divides it.
void AddDivided(const Layer& layer, Alignment alignment, std::set<Weights>& to) {
  for (const int ranks : kRanks) {
    Weights w = {layer.n, layer.k};
    int64_t& divided = layer.divides_k ? w.k : w.n;
    if (divided % ranks != 0) continue;
    divided /= ranks;
    const bool of_128 = w.n % 128 == 0 && w.k % 128 == 0;
    const bool taken = w.k % 16 == 0 && w.n % 8 == 0 && w.n * w.k <= kMaxWeights;
    if (taken && of_128 == (alignment == Alignment::kOf128)) to.insert(w);
  }
}

std::set<Weights> AllOf(Half half, Alignment alignment) {
  std::set<Weights> all;
  for (const Model& model : Models()) {
    if (model.half != half) continue;
    for (const Layer& layer : model.layers) AddDivided(layer, alignment, all);
  }
  return all;
}

// From the generator's own bits: standard distributions differ between libraries.
template <class T>
void Shuffle(std::vector<T>& values, std::mt19937_64& random) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
}

}  // namespace

const std::vector<Model>& Models() {
  static const auto& models = *new std::vector<Model>(MakeModels());
  return models;
}

std::vector<Weights> WeightsOf(Half half, Alignment alignment) {
  const std::set<Weights> own = AllOf(half, alignment);
  if (half == Half::kFit) return {own.begin(), own.end()};
  const std::set<Weights> seen = AllOf(Half::kFit, alignment);
  std::vector<Weights> left;
  std::set_difference(own.begin(), own.end(), seen.begin(), seen.end(), std::back_inserter(left));
  return left;
}

std::string_view ModelWith(Half half, const Weights& weights) {
  for (const Model& model : Models()) {
    if (model.half != half) continue;
    std::set<Weights> own;
    for (const Layer& layer : model.layers) {
      for (const Alignment alignment : {Alignment::kOf128, Alignment::kOdd}) {
        AddDivided(layer, alignment, own);
      }
    }
    if (own.contains(weights)) return model.name;
  }
  return "";
}

absl::Span<const int64_t> ModelRows() {
  static constexpr int64_t kRows[] = {1,    2,   3,   5,    8,    11,   13,   16,        //
                                      17,   24,  31,  32,   33,   40,   48,   57,   64,  //
                                      65,   80,  96,  100,  127,  128,  129,  160,  192,
                                      200,  256, 257, 320,  333,  384,  448,  511,  512,  //
                                      513,  640, 768, 1000, 1024, 1536, 2000, 2048, 3000,
                                      4095, 4096};
  return kRows;
}

std::vector<Shape> ModelShapes(absl::Span<const Weights> weights, int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::array<std::vector<Shape>, std::size(kRowRanges)> by_range;
  for (size_t i = 0; i < by_range.size(); ++i) {
    for (const int64_t m : ModelRows()) {
      if (!kRowRanges[i].contains(m)) continue;
      for (const Weights& w : weights) {
        const Shape shape{m, w.n, w.k};
        if (shape.flops() <= kMaxFlops) by_range[i].push_back(shape);
      }
    }
    Shuffle(by_range[i], random);
  }
  std::vector<Shape> shapes;
  for (size_t turn = 0; static_cast<int>(shapes.size()) < count; ++turn) {
    const size_t before = shapes.size();
    for (const std::vector<Shape>& range : by_range) {
      if (turn < range.size() && static_cast<int>(shapes.size()) < count) {
        shapes.push_back(range[turn]);
      }
    }
    if (shapes.size() == before) break;
  }
  return shapes;
}

}  // namespace gemmd::kernels::bench
