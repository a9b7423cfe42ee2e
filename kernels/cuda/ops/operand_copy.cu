#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ops/operand_copy.h"
#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTileRows = 64;
constexpr int kLineBytes = 128;  // of k, a row of a tile of dst

// A tile of 64 rows and 128 bytes of k in shared memory, [k][row]. Its pitch is of whole words, so
// that 16 bytes along the rows are four stores.
template <class Element>
struct CopyTile {
  static constexpr int kSize = sizeof(Element);
  static constexpr int kTileK = kLineBytes / kSize;
  static constexpr int kUnit = 16 / kSize;
  static constexpr int kPitch = kTileRows + 4 / kSize;
  alignas(16) Element at[kTileK][kPitch];

  // Lines along the rows, 16 bytes a thread.
  __device__ void LoadAlongRows(const OperandCopyArgs& args, const Element* src, int64_t row0,
                                int64_t k0, bool units) {
    constexpr int kAcross = kTileRows / kUnit;
#pragma unroll
    for (int i = threadIdx.x; i < kTileK * kAcross; i += kThreads) {
      const int k = i / kAcross, row = i % kAcross * kUnit;
      const bool inside = k0 + k < args.k;
      const Element* const from = src + (k0 + k) * args.src_k + row0 + row;
      union {
        uint4 all;
        uint32_t words[4];
        Element of[kUnit];
      } v = {};
      if (inside && units && row0 + row + kUnit <= args.rows) {
        v.all = *reinterpret_cast<const uint4*>(from);
      } else if (inside) {
        for (int j = 0; j < kUnit; ++j) {
          if (row0 + row + j < args.rows) v.of[j] = from[j];
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        *reinterpret_cast<uint32_t*>(&at[k][row + j * kUnit / 4]) = v.words[j];
      }
    }
  }
  // Element by element, lanes along k.
  __device__ void LoadAlongK(const OperandCopyArgs& args, const Element* src, int64_t row0,
                             int64_t k0) {
#pragma unroll 4
    for (int i = threadIdx.x; i < kTileK * kTileRows; i += kThreads) {
      const int k = i % kTileK, row = i / kTileK;
      const bool inside = k0 + k < args.k && row0 + row < args.rows;
      at[k][row] = inside ? src[(k0 + k) * args.src_k + (row0 + row) * args.src_row] : Element{0};
    }
  }
  __device__ void Store(const OperandCopyArgs& args, Element* dst, int64_t row0, int64_t k0) const {
    constexpr int kAcross = kTileK / kUnit;
#pragma unroll
    for (int i = threadIdx.x; i < kTileRows * kAcross; i += kThreads) {
      const int row = i / kAcross, k = i % kAcross * kUnit;
      if (row0 + row >= args.rows || k0 + k >= args.dst_ld) continue;
      union {
        uint4 all;
        Element of[kUnit];
      } v;
#pragma unroll
      for (int j = 0; j < kUnit; ++j) v.of[j] = at[k + j][row];
      *reinterpret_cast<uint4*>(dst + (row0 + row) * args.dst_ld + k0 + k) = v.all;
    }
  }
};

template <class Element>
__global__ void __launch_bounds__(kThreads)
    CopyOperand(const __grid_constant__ OperandCopyArgs args) {
  using Tile = CopyTile<Element>;
  __shared__ Tile tile;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const bool along_rows = args.src_row == 1;
  const bool units = reinterpret_cast<uint64_t>(args.src) % 16 == 0 &&
                     args.src_k % Tile::kUnit == 0 && args.src_batch % Tile::kUnit == 0;
  const int64_t k0 = static_cast<int64_t>(blockIdx.x) * Tile::kTileK;
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    const Element* const src = static_cast<const Element*>(args.src) + batch * args.src_batch;
    Element* const dst = static_cast<Element*>(args.dst) + batch * args.rows * args.dst_ld;
    for (int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTileRows; row0 < args.rows;
         row0 += static_cast<int64_t>(gridDim.y) * kTileRows) {
      if (along_rows) {
        tile.LoadAlongRows(args, src, row0, k0, units);
      } else {
        tile.LoadAlongK(args, src, row0, k0);
      }
      __syncthreads();  // the tile is whole
      tile.Store(args, dst, row0, k0);
      __syncthreads();  // and has been read, before the next one overwrites it
    }
  }
}

}  // namespace

cudaError_t LaunchOperandCopy(const OperandCopyArgs& args, cudaStream_t stream) {
  const int64_t tiles = CeilDiv(args.k * args.element_bytes, kLineBytes);
  if (args.batch < 0 || args.rows < 0 || args.k < 0 || tiles > kMaxGridX) {
    return cudaErrorInvalidValue;
  }
  if (args.batch == 0 || args.rows == 0 || args.k == 0) return cudaSuccess;
  const auto kernel = args.element_bytes == 2 ? CopyOperand<uint16_t> : CopyOperand<uint8_t>;
  return LaunchKernel(kernel, GridOf(tiles, CeilDiv(args.rows, kTileRows), args.batch), kThreads,
                      args.programmatic, stream, args);
}

}  // namespace gemmd::kernels::cuda
