// FP32 operands as their BF16 parts, in front of a matmul by those.

#include "kernels/cuda/ops/float_parts.cuh"
#include "kernels/cuda/ops/two_copies.cuh"
#include "kernels/cuda/ops/unaligned.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;  // rows and k's
constexpr int kUnit = 8;   // k's of a row, 16 bytes of each part
constexpr int kAcross = kTile / kUnit;
constexpr int kUnitsEach = kTile * kAcross / kThreads;

// Of 16 bytes of floats, where so many are left.
__device__ __forceinline__ int BytesLeft(int64_t floats) {
  return static_cast<int>(max(int64_t{0}, min(floats, int64_t{4}))) * 4;
}

struct Unit {
  float at[kUnit];

  __device__ __forceinline__ void Set(int first, uint4 v) {
    at[first] = __uint_as_float(v.x);
    at[first + 1] = __uint_as_float(v.y);
    at[first + 2] = __uint_as_float(v.z);
    at[first + 3] = __uint_as_float(v.w);
  }
  // To where its first part goes; the others lie `apart` elements behind.
  __device__ __forceinline__ void Store(uint16_t* to, int64_t apart) const {
    FloatPairParts parts[kUnit / 2];
    PartsOf(at, parts);
#pragma unroll
    for (int part = 0; part < kFloatParts; ++part) {
      *reinterpret_cast<uint4*>(to + part * apart) =
          make_uint4(parts[0].of[part], parts[1].of[part], parts[2].of[part], parts[3].of[part]);
    }
  }
};

// A tile that does not lie along k: [k][row]. Of an odd pitch, so that a row's units meet few of
// one another's banks.
struct TurnedTile {
  float at[kTile][kTile + 1];

  __device__ void Load(const OperandCopyArgs& args, const float* src, int64_t row0, int64_t k0) {
    constexpr int kChunks = kTile / 4, kEach = kTile * kChunks / kThreads;
    if (args.src_row != 1) return LoadStrided(args, src, row0, k0);
    UnitsAround units[kEach];
    int shifts[kEach], bytes[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kThreads;
      const int k = i / kChunks, row = i % kChunks * 4;
      const float* const from = src + (k0 + k) * args.src_k + row0 + row;
      bytes[j] = k0 + k < args.k ? BytesLeft(args.rows - row0 - row) : 0;
      shifts[j] = UnitsAround::ShiftOf(from);
      units[j].Load(from, bytes[j]);
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kThreads;
      Unit four;
      four.Set(0, units[j].Bytes(shifts[j], bytes[j]));
#pragma unroll
      for (int row = 0; row < 4; ++row) at[i / kChunks][i % kChunks * 4 + row] = four.at[row];
    }
  }

 private:
  __device__ void LoadStrided(const OperandCopyArgs& args, const float* src, int64_t row0,
                              int64_t k0) {
#pragma unroll 4
    for (int i = threadIdx.x; i < kTile * kTile; i += kThreads) {
      const int k = i % kTile, row = i / kTile;
      const bool inside = k0 + k < args.k && row0 + row < args.rows;
      at[k][row] = inside ? src[(k0 + k) * args.src_k + (row0 + row) * args.src_row] : 0.0f;
    }
  }
};

__device__ __forceinline__ void PartTile(const OperandCopyArgs& args, TurnedTile& turned,
                                         int64_t batch, int64_t row0, int64_t k0) {
  const auto* const src = static_cast<const float*>(args.src) + batch * args.src_batch;
  const int64_t apart = args.rows * args.dst_ld;
  auto* const dst = static_cast<uint16_t*>(args.dst) + batch * kFloatParts * apart;
  const bool along_k = args.src_k == 1;
  Unit units[kUnitsEach] = {};
  if (!along_k) {
    turned.Load(args, src, row0, k0);
    __syncthreads();  // the tile is whole
  }
#pragma unroll
  for (int j = 0; j < kUnitsEach; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * kThreads;
    const int row = i / kAcross, k = i % kAcross * kUnit;
    if (!along_k) {
#pragma unroll
      for (int e = 0; e < kUnit; ++e) units[j].at[e] = turned.at[k + e][row];
      continue;
    }
#pragma unroll
    for (int half = 0; half < kUnit; half += 4) {
      const float* const from = src + (row0 + row) * args.src_row + k0 + k + half;
      const int bytes = row0 + row < args.rows ? BytesLeft(args.k - k0 - k - half) : 0;
      UnitsAround around;
      around.Load(from, bytes);
      units[j].Set(half, around.Bytes(UnitsAround::ShiftOf(from), bytes));
    }
  }
#pragma unroll
  for (int j = 0; j < kUnitsEach; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * kThreads;
    const int64_t row = row0 + i / kAcross, k = k0 + i % kAcross * kUnit;
    if (row < args.rows && k < args.dst_ld) units[j].Store(dst + row * args.dst_ld + k, apart);
  }
  if (!along_k) __syncthreads();  // the tile has been read, before the next one overwrites it
}

__global__ void __launch_bounds__(kThreads) OperandParts(const __grid_constant__ Copies copies) {
  __shared__ TurnedTile turned;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const bool first = blockIdx.x < copies.lines_of_first;
  const OperandCopyArgs& args = first ? copies.of[0] : copies.of[1];
  const int64_t k0 = static_cast<int64_t>(blockIdx.x - (first ? 0 : copies.lines_of_first)) * kTile;
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    for (int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTile; row0 < args.rows;
         row0 += static_cast<int64_t>(gridDim.y) * kTile) {
      PartTile(args, turned, batch, row0, k0);
    }
  }
}

}  // namespace

cudaError_t LaunchOperandParts(const OperandCopyArgs* copies, int count, bool programmatic,
                               cudaStream_t stream) {
  return LaunchCopies(OperandParts, copies, count, 4, kTile, kTile, kThreads, programmatic, stream);
}

}  // namespace gemmd::kernels::cuda
