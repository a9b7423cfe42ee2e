// A router's choice. A warp has a token: each lane keeps the experts lane, lane + 32, .. in
// registers, and the warp takes the largest of all, top_k times. What is compared are keys, whole
// numbers in the order of the floats: a maximum of the warp is one instruction then, and 0, below
// every number's key, stands for what may not be chosen.

#include "kernels/cuda/experts/choose.h"
#include "kernels/cuda/ops/element.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kMostWarps = 4;
// Up to here CTAs of one warp, which spread over all SMs: on an H200 each of an SM's four
// schedulers has one.
constexpr int64_t kSpreadTokens = 528;
constexpr int kMostExperts = 512;
constexpr int kMostTopK = 32;        // a lane for each choice
constexpr int kInverseBits = 20;     // expert * size stays below 2^20: the quotient is exact
constexpr uint32_t kNone = 0;        // the key of what may not be chosen
constexpr float kLeastSum = 1e-20f;  // is added to the sum that weights are divided by
constexpr uint32_t kSignBit = 1u << 31;

// In the order of the numbers, above kNone; of NaN kNone.
__device__ __forceinline__ uint32_t KeyOf(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t key = (bits & kSignBit) != 0 ? ~bits : bits | kSignBit;
  return x == x ? key : kNone;
}

__device__ __forceinline__ float NumberOf(uint32_t key) {
  return __uint_as_float((key & kSignBit) != 0 ? key ^ kSignBit : ~key);
}

// The same bits in every lane.
__device__ __forceinline__ float SumOfLanes(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// All loads are under way together. NaN behind the last expert, which is never chosen.
template <ElementType kType, int kEach>
__device__ __forceinline__ void LoadLogits(const ChooseArgs& args, int64_t token, int lane,
                                           float (&logits)[kEach]) {
  uint32_t codes[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int expert = lane + 32 * i;
    const int64_t at = token * args.logits_row + expert * args.logits_col;
    codes[i] = expert < args.experts ? LoadCode(args.logits, at, ElementBytes(kType)) : 0;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const bool there = lane + 32 * i < args.experts;
    logits[i] = there ? ToF32(kType, codes[i]) : __uint_as_float(0x7fc00000u);
  }
}

// Logits become scores; NaN stays NaN.
template <int kEach>
__device__ __forceinline__ void Score(bool sigmoid, float (&x)[kEach]) {
  if (sigmoid) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = __fdiv_rn(1.0f, 1.0f + expf(-x[i]));
    return;
  }
  uint32_t key = kNone;
#pragma unroll
  for (int i = 0; i < kEach; ++i) key = max(key, KeyOf(x[i]));
  const float largest = NumberOf(__reduce_max_sync(kAllLanes, key));
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    x[i] = x[i] == largest ? 1.0f : expf(x[i] - largest);
    sum += x[i] == x[i] ? x[i] : 0.0f;
  }
  sum = SumOfLanes(sum);
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] = __fdiv_rn(x[i], sum);
}

// Of one warp. An expert's key stands behind one unused word for each 32, which keeps the teams
// that read groups of 32 neighbours off each other's banks.
template <int kEach>
struct GroupKeys {
  uint32_t experts[33 * kEach];
  uint32_t groups[32 * kEach];
};
__device__ __forceinline__ int PlaceOf(int expert) { return expert + expert / 32; }

// How a warp goes over groups: `team` lanes for each, a power of two.
struct Teams {
  int team;
  int size;          // experts of a group
  uint32_t inverse;  // expert * inverse >> kInverseBits is expert / size
};

// Each group's key into `shared`.
template <int kEach>
__device__ __forceinline__ void KeysOfGroups(const ChooseArgs& args, const Teams& teams, int lane,
                                             GroupKeys<kEach>& shared) {
  const int member = lane % teams.team;
  for (int from = 0; from < args.groups; from += 32 / teams.team) {
    const int group = from + lane / teams.team;
    uint32_t first = kNone, second = kNone;
    if (group < args.groups) {
      for (int i = member; i < teams.size; i += teams.team) {
        const uint32_t key = shared.experts[PlaceOf(group * teams.size + i)];
        second = max(second, min(first, key));
        first = max(first, key);
      }
    }
    for (int step = 1; step < teams.team; step *= 2) {
      const uint32_t other = __shfl_xor_sync(kAllLanes, first, step);
      const uint32_t behind = __shfl_xor_sync(kAllLanes, second, step);
      second = max(max(second, behind), min(first, other));
      first = max(first, other);
    }
    if (group >= args.groups || member != 0) continue;
    const bool sums = args.sums_two && second != kNone;
    shared.groups[group] = sums ? KeyOf(NumberOf(first) + NumberOf(second)) : first;
  }
}

// Takes the keys of experts whose group may not be chosen from. A group's rank is how many come
// before it, so that every lane works on groups of its own.
template <int kEach>
__device__ __forceinline__ void KeepTopGroups(const ChooseArgs& args, const Teams& teams, int lane,
                                              GroupKeys<kEach>& shared, uint32_t (&keys)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) shared.experts[PlaceOf(lane + 32 * i)] = keys[i];
  __syncwarp();  // every expert's key is there
  KeysOfGroups(args, teams, lane, shared);
  __syncwarp();       // every group's key is there
  uint32_t kept = 0;  // a bit for each of this lane's groups
  for (int i = 0; lane + 32 * i < args.groups; ++i) {
    const int group = lane + 32 * i;
    const uint32_t key = shared.groups[group];
    int before = 0;
    for (int g = 0; g < args.groups; ++g) {
      const uint32_t other = shared.groups[g];
      before += other > key || (other == key && g < group);
    }
    kept |= static_cast<uint32_t>(key != kNone && before < args.top_groups) << i;
  }
  __syncwarp();  // all ranks are known, and keys of groups are not read any more
  for (int i = 0; lane + 32 * i < args.groups; ++i) shared.groups[lane + 32 * i] = kept >> i & 1;
  __syncwarp();  // which groups are kept is there
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const uint32_t expert = lane + 32 * i;
    if (expert >= args.experts) continue;
    if (shared.groups[expert * teams.inverse >> kInverseBits] == 0) keys[i] = kNone;
  }
  __syncwarp();  // nobody reads any more: the next token's keys may be written
}

// The largest of a lane's experts, the first of equal ones.
template <int kEach>
struct Largest {
  uint32_t key;
  int index;
  float score;

  __device__ __forceinline__ Largest(const uint32_t (&keys)[kEach], const float (&scores)[kEach])
      : key(keys[0]), index(0), score(scores[0]) {
#pragma unroll
    for (int i = 1; i < kEach; ++i) {
      if (keys[i] <= key) continue;
      key = keys[i];
      index = i;
      score = scores[i];
    }
  }
};

// Lane j's choice is the token's j-th.
template <int kEach>
__device__ __forceinline__ void TakeLargest(const ChooseArgs& args, int64_t token, int lane,
                                            const float (&scores)[kEach], uint32_t (&keys)[kEach]) {
  Largest<kEach> mine(keys, scores);
  int chosen = -1;
  float weight = 0.0f, sum = 0.0f;
  for (int j = 0; j < args.top_k; ++j) {
    const uint32_t key = __reduce_max_sync(kAllLanes, mine.key);
    if (key == kNone) break;
    const unsigned expert =
        __reduce_min_sync(kAllLanes, mine.key == key ? lane + 32u * mine.index : kMostExperts);
    const int owner = static_cast<int>(expert % 32);
    const float score = __shfl_sync(kAllLanes, mine.score, owner);
    sum += score;
    if (lane == j) {
      chosen = static_cast<int>(expert);
      weight = score;
    }
    if (lane == owner) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) keys[i] = i == mine.index ? kNone : keys[i];
      mine = Largest<kEach>(keys, scores);
    }
  }
  if (lane >= args.top_k) return;
  if (args.renormalize) weight = __fdiv_rn(weight, sum + kLeastSum);
  args.chosen[token * args.chosen_row + lane] = chosen;
  args.weights[token * args.weights_row + lane * args.weights_col] = weight * args.scale;
}

template <int kEach, bool kGrouped>
__global__ void __launch_bounds__(32 * kMostWarps)
    Choose(const __grid_constant__ ChooseArgs args, Teams teams) {
  __shared__ GroupKeys<kGrouped ? kEach : 1> shared[kGrouped ? kMostWarps : 1];
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  const int64_t step = static_cast<int64_t>(gridDim.x) * warps;
  for (int64_t token = static_cast<int64_t>(blockIdx.x) * warps + warp; token < args.tokens;
       token += step) {
    float scores[kEach];
    if (args.logits_type == ElementType::kF32) {
      LoadLogits<ElementType::kF32>(args, token, lane, scores);
    } else if (args.logits_type == ElementType::kBF16) {
      LoadLogits<ElementType::kBF16>(args, token, lane, scores);
    } else {
      LoadLogits<ElementType::kF16>(args, token, lane, scores);
    }
    float bias[kEach] = {};
    if (args.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int expert = lane + 32 * i;
        if (expert < args.experts) bias[i] = args.bias[expert * args.bias_stride];
      }
    }
    Score(args.sigmoid, scores);
    uint32_t keys[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) keys[i] = KeyOf(scores[i] + bias[i]);
    if constexpr (kGrouped) KeepTopGroups(args, teams, lane, shared[warp], keys);
    TakeLargest(args, token, lane, scores, keys);
  }
}

Teams TeamsOf(const ChooseArgs& args) {
  Teams teams = {.team = 1, .size = args.experts / args.groups, .inverse = 0};
  while (2 * teams.team * args.groups <= 32) teams.team *= 2;
  teams.inverse = static_cast<uint32_t>(CeilDiv(int64_t{1} << kInverseBits, teams.size));
  return teams;
}

template <int kEach>
cudaError_t LaunchOf(const ChooseArgs& args, cudaStream_t stream) {
  const int warps = args.tokens <= kSpreadTokens ? 1 : kMostWarps;
  const auto kernel = args.groups > 1 ? Choose<kEach, true> : Choose<kEach, false>;
  return LaunchKernel(kernel, GridOf(CeilDiv(args.tokens, warps)), 32 * warps, args.programmatic,
                      stream, args, TeamsOf(args));
}

}  // namespace

cudaError_t LaunchChoose(const ChooseArgs& args, cudaStream_t stream) {
  if (args.experts < 1 || args.experts > kMostExperts || args.top_k < 1 || args.top_k > kMostTopK ||
      args.groups < 1 || args.experts % args.groups != 0) {
    return cudaErrorInvalidValue;
  }
  if (args.tokens <= 0) return cudaSuccess;
  if (args.experts <= 32) return LaunchOf<1>(args, stream);
  if (args.experts <= 64) return LaunchOf<2>(args, stream);
  if (args.experts <= 128) return LaunchOf<4>(args, stream);
  if (args.experts <= 256) return LaunchOf<8>(args, stream);
  return LaunchOf<16>(args, stream);
}

}  // namespace gemmd::kernels::cuda
