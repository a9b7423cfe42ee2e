#include "kernels/cuda/ops/two_copies.cuh"
#include "kernels/cuda/ops/unaligned.cuh"
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
                                int64_t k0) {
    constexpr int kAcross = kTileRows / kUnit;
    static_assert(kTileK * kAcross % kThreads == 0);
    constexpr int kEach = kTileK * kAcross / kThreads;
    UnitsAround units[kEach];
    int shifts[kEach], bytes[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kThreads;
      const int k = i / kAcross, row = i % kAcross * kUnit;
      const Element* const from = src + (k0 + k) * args.src_k + row0 + row;
      bytes[j] = k0 + k < args.k ? BytesLeft(args.rows - row0 - row) : 0;
      shifts[j] = UnitsAround::ShiftOf(from);
      units[j].Load(from, bytes[j]);
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kThreads;
      const int k = i / kAcross, row = i % kAcross * kUnit;
      const uint4 v = units[j].Bytes(shifts[j], bytes[j]);
      const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        *reinterpret_cast<uint32_t*>(&at[k][row + word * kUnit / 4]) = words[word];
      }
    }
  }
  // Of a unit, where so many elements are left.
  static __device__ __forceinline__ int BytesLeft(int64_t elements) {
    return static_cast<int>(max(int64_t{0}, min(elements, static_cast<int64_t>(kUnit)))) * kSize;
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

// Rows that are dense along k, but begin anywhere: 16 bytes a thread, from memory to memory.
template <class Element>
__device__ __forceinline__ void CopyRows(const OperandCopyArgs& args, const Element* src,
                                         Element* dst, int64_t row0, int64_t k0) {
  using Tile = CopyTile<Element>;
  constexpr int kAcross = kLineBytes / 16, kEach = kTileRows * kAcross / kThreads;
  UnitsAround units[kEach];
  int shifts[kEach], bytes[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * kThreads;
    const int64_t row = row0 + i / kAcross, k = k0 + i % kAcross * Tile::kUnit;
    const Element* const from = src + row * args.src_row + k;
    bytes[j] = row < args.rows ? Tile::BytesLeft(args.k - k) : 0;
    shifts[j] = UnitsAround::ShiftOf(from);
    units[j].Load(from, bytes[j]);
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * kThreads;
    const int64_t row = row0 + i / kAcross, k = k0 + i % kAcross * Tile::kUnit;
    if (row >= args.rows || k >= args.dst_ld) continue;
    *reinterpret_cast<uint4*>(dst + row * args.dst_ld + k) = units[j].Bytes(shifts[j], bytes[j]);
  }
}

template <class Element>
__global__ void __launch_bounds__(kThreads) CopyOperands(const __grid_constant__ Copies copies) {
  using Tile = CopyTile<Element>;
  __shared__ Tile tile;
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const bool first = blockIdx.x < copies.lines_of_first;
  const OperandCopyArgs& args = first ? copies.of[0] : copies.of[1];
  const int64_t k0 =
      static_cast<int64_t>(blockIdx.x - (first ? 0 : copies.lines_of_first)) * Tile::kTileK;
  for (int64_t batch = blockIdx.z; batch < args.batch; batch += gridDim.z) {
    const Element* const src = static_cast<const Element*>(args.src) + batch * args.src_batch;
    Element* const dst = static_cast<Element*>(args.dst) + batch * args.rows * args.dst_ld;
    for (int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTileRows; row0 < args.rows;
         row0 += static_cast<int64_t>(gridDim.y) * kTileRows) {
      if (args.src_k == 1) {
        CopyRows(args, src, dst, row0, k0);
        continue;
      }
      if (args.src_row == 1) {
        tile.LoadAlongRows(args, src, row0, k0);
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

cudaError_t LaunchOperandCopies(const OperandCopyArgs* copies, int count, bool programmatic,
                                cudaStream_t stream) {
  if (count <= 0) return count == 0 ? cudaSuccess : cudaErrorInvalidValue;
  const int size = copies[0].element_bytes;
  if (size != 1 && size != 2) return cudaErrorInvalidValue;
  const auto kernel = size == 2 ? CopyOperands<uint16_t> : CopyOperands<uint8_t>;
  return LaunchCopies(kernel, copies, count, size, kTileRows, kLineBytes / size, kThreads,
                      programmatic, stream);
}

}  // namespace gemmd::kernels::cuda
