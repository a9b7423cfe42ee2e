#include <algorithm>
#include <cstring>

#include "kernels/cuda/ops/element.cuh"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/in_turn.cuh"
#include "kernels/cuda/ops/launch.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxCtas = 132 * 64;  // more would only queue; threads stride over the rest

// Two views walked together, outermost dimension first. The innermost is dst's densest.
struct Runs {
  int64_t extent[kElementwiseRank];
  int64_t src_stride[kElementwiseRank];
  int64_t dst_stride[kElementwiseRank];
};

// What a kernel does with each element: move src's (converted unless the types are equal), or
// store `code` where src is null.
struct Move {
  const void* src;
  void* dst;
  ElementType src_type;
  ElementType dst_type;
  uint32_t code;
  bool independent;
};

struct Place {
  int64_t src, dst, column;  // offsets of a run's first element; the element within the run
};

// Item i of a walk that cuts each run into `per_run` items. 64-bit division is slow, and rarely
// needed.
__device__ __forceinline__ Place PlaceOf(const Runs& runs, int64_t i, int64_t per_run) {
  int64_t row = 0;
  int64_t column = i;
  if (runs.extent[0] * runs.extent[1] != 1) {
    if (((i | per_run) >> 32) == 0) {
      row = static_cast<uint32_t>(i) / static_cast<uint32_t>(per_run);
    } else {
      row = i / per_run;
    }
    column = i - row * per_run;
  }
  int64_t outer = 0;
  if (runs.extent[0] != 1) {
    outer = row / runs.extent[1];
    row -= outer * runs.extent[1];
  }
  return {outer * runs.src_stride[0] + row * runs.src_stride[1],
          outer * runs.dst_stride[0] + row * runs.dst_stride[1], column};
}

__device__ __forceinline__ void MoveOne(const Move& move, int64_t from, int64_t to) {
  uint32_t code = move.code;
  if (move.src != nullptr) {
    code = LoadCode(move.src, from, ElementBytes(move.src_type));
    if (move.src_type != move.dst_type) {
      code = FromF32(move.dst_type, ToF32(move.src_type, code));
    }
  }
  StoreCode(move.dst, to, ElementBytes(move.dst_type), code);
}

__global__ void __launch_bounds__(kThreads)
    MoveElements(const __grid_constant__ Runs runs, const __grid_constant__ Move move) {
  BeginInTurn(move.independent);
  const int64_t count = runs.extent[0] * runs.extent[1] * runs.extent[2];
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    const Place place = PlaceOf(runs, i, runs.extent[2]);
    MoveOne(move, place.src + place.column * runs.src_stride[2],
            place.dst + place.column * runs.dst_stride[2]);
  }
  EndInTurn(move.independent);
}

// Elements that a thread moves at once in dense runs. It stores them at once too, 16 bytes at most:
// 32 by two stores, each of which leaves gaps, went to the host's memory at 12 GB/s instead of 52.
constexpr int PackOf(ElementType dst_type) { return ElementBytes(dst_type) == 4 ? 4 : 8; }

// So many elements as they lie in memory.
template <int kPack>
struct Pack {
  uint32_t words[kPack];
};

template <class Vector>
__device__ __forceinline__ void LoadWords(const void* from, uint32_t* words) {
  const Vector x = *static_cast<const Vector*>(from);
  std::memcpy(words, &x, sizeof(x));
}

template <class Vector>
__device__ __forceinline__ void StoreWords(void* to, const uint32_t* words) {
  Vector x;
  std::memcpy(&x, words, sizeof(x));
  *static_cast<Vector*>(to) = x;
}

template <int kPack>
__device__ __forceinline__ Pack<kPack> LoadPack(const void* data, int64_t element, int bytes) {
  Pack<kPack> pack = {};
  const char* from = static_cast<const char*>(data) + element * bytes;
  switch (kPack * bytes) {
    case 4:
      LoadWords<uint32_t>(from, pack.words);
      break;
    case 8:
      LoadWords<uint2>(from, pack.words);
      break;
    case 16:
      LoadWords<uint4>(from, pack.words);
      break;
    default:
      if constexpr (kPack == 8) {
        LoadWords<uint4>(from, pack.words);
        LoadWords<uint4>(from + 16, pack.words + 4);
      }
  }
  return pack;
}

template <int kPack>
__device__ __forceinline__ void StorePack(void* data, int64_t element, int bytes,
                                          const Pack<kPack>& pack) {
  char* to = static_cast<char*>(data) + element * bytes;
  if (kPack * bytes == 8) {
    StoreWords<uint2>(to, pack.words);
  } else {
    StoreWords<uint4>(to, pack.words);
  }
}

// Every index is a constant once unrolled: the words stay in registers.
template <int kPack>
__device__ __forceinline__ uint32_t CodeOf(const Pack<kPack>& pack, int i, int bytes) {
  if (bytes == 4) return pack.words[i];
  if (bytes == 2) return pack.words[i / 2] >> (i % 2 * 16) & 0xffffu;
  return pack.words[i / 4] >> (i % 4 * 8) & 0xffu;
}

template <int kPack>
__device__ __forceinline__ void SetCode(Pack<kPack>& pack, int i, int bytes, uint32_t code) {
  if (bytes == 4) {
    pack.words[i] = code;
  } else if (bytes == 2) {
    pack.words[i / 2] |= code << (i % 2 * 16);
  } else {
    pack.words[i / 4] |= code << (i % 4 * 8);
  }
}

// Runs of stride 1 on both sides whose starts are aligned to a pack; their last elements may not
// fill one. kPack is PackOf(move.dst_type).
template <int kPack>
__global__ void __launch_bounds__(kThreads)
    MovePacks(const __grid_constant__ Runs runs, const __grid_constant__ Move move) {
  BeginInTurn(move.independent);
  const int src_bytes = ElementBytes(move.src_type);
  const int dst_bytes = ElementBytes(move.dst_type);
  const int64_t per_run = CeilDiv(runs.extent[2], kPack);
  const int64_t count = runs.extent[0] * runs.extent[1] * per_run;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    const Place place = PlaceOf(runs, i, per_run);
    const int64_t column = place.column * kPack;
    if (column + kPack > runs.extent[2]) {
      for (int64_t c = column; c < runs.extent[2]; ++c) {
        MoveOne(move, place.src + c, place.dst + c);
      }
      continue;
    }
    Pack<kPack> in = {};
    if (move.src != nullptr) in = LoadPack<kPack>(move.src, place.src + column, src_bytes);
    Pack<kPack> out = {};
    if (move.src != nullptr && move.src_type == move.dst_type) {
      out = in;
    } else {
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        const uint32_t code =
            move.src == nullptr
                ? move.code
                : FromF32(move.dst_type, ToF32(move.src_type, CodeOf(in, j, src_bytes)));
        SetCode(out, j, dst_bytes, code);
      }
    }
    StorePack(move.dst, place.dst + column, dst_bytes, out);
  }
  EndInTurn(move.independent);
}

// Drops extents of 1, puts dst's densest dimension last and joins dimensions that lie behind one
// another in both views. The shape has no extent of 0.
Runs PlanRuns(const int64_t* shape, const int64_t* src_stride, const int64_t* dst_stride) {
  struct Dimension {
    int64_t extent, src, dst;
  };
  Dimension dims[kElementwiseRank];
  int count = 0;
  for (int i = 0; i < kElementwiseRank; ++i) {
    if (shape[i] == 1) continue;
    int at = count++;
    for (; at > 0 && dims[at - 1].dst < dst_stride[i]; --at) dims[at] = dims[at - 1];
    dims[at] = {shape[i], src_stride[i], dst_stride[i]};
  }
  int joined = 0;
  for (int i = 0; i < count; ++i) {
    const Dimension inner = dims[i];
    Dimension* outer = joined > 0 ? &dims[joined - 1] : nullptr;
    if (outer != nullptr && outer->src == inner.extent * inner.src &&
        outer->dst == inner.extent * inner.dst) {
      *outer = {outer->extent * inner.extent, inner.src, inner.dst};
    } else {
      dims[joined++] = inner;
    }
  }
  Runs runs = {{1, 1, 1}, {0, 0, 1}, {0, 0, 1}};
  for (int i = 0; i < joined; ++i) {
    const int at = kElementwiseRank - joined + i;
    runs.extent[at] = dims[i].extent;
    runs.src_stride[at] = dims[i].src;
    runs.dst_stride[at] = dims[i].dst;
  }
  return runs;
}

// Whether every run of a view starts where packs can be loaded or stored.
bool Packed(int pack, const void* data, ElementType type, const int64_t* extent,
            const int64_t* stride) {
  const int bytes = ElementBytes(type);
  const int64_t unit = std::min(pack * bytes, 16);
  bool packed = stride[2] == 1 && reinterpret_cast<uintptr_t>(data) % unit == 0;
  for (int i = 0; i < 2; ++i) packed = packed && (extent[i] == 1 || stride[i] * bytes % unit == 0);
  return packed;
}

cudaError_t Launch(const Runs& runs, const Move& move, bool programmatic, cudaStream_t stream) {
  const int pack = PackOf(move.dst_type);
  const bool packs =
      Packed(pack, move.dst, move.dst_type, runs.extent, runs.dst_stride) &&
      (move.src == nullptr || Packed(pack, move.src, move.src_type, runs.extent, runs.src_stride));
  const int64_t per_run = packs ? CeilDiv(runs.extent[2], pack) : runs.extent[2];
  const int64_t ctas = CeilDiv(runs.extent[0] * runs.extent[1] * per_run, kThreads);
  const auto kernel = !packs ? MoveElements : pack == 4 ? MovePacks<4> : MovePacks<8>;
  return LaunchKernel(kernel, GridOf(ctas < kMaxCtas ? ctas : kMaxCtas), kThreads, programmatic,
                      stream, runs, move);
}

// Negative for a shape that is none, else whether it has elements.
int CountOf(const int64_t* shape) {
  bool empty = false;
  for (int i = 0; i < kElementwiseRank; ++i) {
    if (shape[i] < 0) return -1;
    empty = empty || shape[i] == 0;
  }
  return empty ? 0 : 1;
}

}  // namespace

cudaError_t LaunchConvert(const ConvertArgs& args, cudaStream_t stream) {
  const int count = CountOf(args.shape);
  if (count <= 0) return count < 0 ? cudaErrorInvalidValue : cudaSuccess;
  return Launch(PlanRuns(args.shape, args.src_stride, args.dst_stride),
                {args.src, args.dst, args.src_type, args.dst_type, 0, args.independent},
                args.programmatic, stream);
}

cudaError_t LaunchFill(const FillArgs& args, cudaStream_t stream) {
  const int count = CountOf(args.shape);
  if (count <= 0) return count < 0 ? cudaErrorInvalidValue : cudaSuccess;
  const int bits = 8 * ElementBytes(args.type);
  const uint32_t code = bits == 32 ? args.code : args.code & ((1u << bits) - 1);
  return Launch(PlanRuns(args.shape, args.dst_stride, args.dst_stride),
                {nullptr, args.dst, args.type, args.type, code, args.independent},
                args.programmatic, stream);
}

}  // namespace gemmd::kernels::cuda
