// The directory of a grouped matmul: whatever tells the groups becomes lists of tiles, by one CTA.
// Numbers that cannot be make no tiles, and are told to the host.

#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/sm90/launch/grouped.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
static_assert(kMostGroups <= kThreads, "a thread for each group");

struct Shared {
  int first[kMostGroups];
  int rows[kMostGroups];
  int before[kTileLists][kMostGroups + 1];  // tiles of the groups in front of each
  int warp_sums[kWarps];
  bool ends_wrong;
  int fault;  // the lowest index at fault, with its kind and value below
  DataFaultKind fault_kind;
  int fault_value;
};

__device__ __forceinline__ void Report(Shared& shared, DataFaultKind kind, int index, int value) {
  // The lowest index stays; of one index there is one value.
  if (atomicMin(&shared.fault, index) > index) {
    shared.fault_kind = kind;
    shared.fault_value = value;
  }
}

// The sum of `value` over the threads in front of this one; `total` of all.
__device__ __forceinline__ int SumBefore(Shared& shared, int value, int& total) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) shared.warp_sums[warp] = sum;
  __syncthreads();  // every warp's sum is there
  int before = 0;
  total = 0;
  for (int i = 0; i < kWarps; ++i) {
    if (i == warp) before = total;
    total += shared.warp_sums[i];
  }
  __syncthreads();  // and has been read
  return before + sum - value;
}

// One load for each number: it may change meanwhile.
__device__ __forceinline__ int Load(const int32_t* index, int i) {
  return *const_cast<const volatile int32_t*>(index + i);
}

__device__ void ReadOffsets(const DirectoryArgs& args, Shared& shared) {
  const int g = threadIdx.x;
  // `before` is not in use yet: the offsets, each read once.
  int* const offsets = shared.before[0];
  if (g <= args.groups) offsets[g] = Load(args.index, g);
  __syncthreads();
  if (g >= args.groups) return;
  const int first = offsets[g], end = offsets[g + 1];
  if (first < 0 || first > args.rows) {
    Report(shared, DataFaultKind::kOffset, g, first);
  } else if (end < first || end > args.rows) {
    Report(shared, DataFaultKind::kOffset, g + 1, end);
  } else {
    shared.first[g] = first;
    shared.rows[g] = end - first;
  }
}

__device__ void ReadCounts(const DirectoryArgs& args, Shared& shared) {
  const int g = threadIdx.x;
  if (g >= args.groups) return;
  const int rows = Load(args.index, g);
  if (rows < 0 || rows > args.rows) {
    Report(shared, DataFaultKind::kCount, g, rows);
  } else {
    shared.rows[g] = rows;
  }
}

// Each end by the one before it. Where none is wrong that is a walk's result.
__device__ void ReadEnds(const DirectoryArgs& args, Shared& shared) {
  int* const ends = shared.before[0];
  const int g = threadIdx.x;
  if (g < args.groups) ends[g] = Load(args.index, g);
  __syncthreads();  // all ends are there
  const auto start_behind = [&](int64_t end) {
    return (end + args.alignment - 1) / args.alignment * args.alignment;
  };
  if (g < args.groups) {
    const int before = g > 0 ? ends[g - 1] : 0, end = ends[g];
    const int64_t first = start_behind(before);
    const bool wrong = end != before && (end < first || end > args.rows);
    if (wrong) {
      shared.ends_wrong = true;
    } else if (end != before) {
      shared.first[g] = static_cast<int>(first);
      shared.rows[g] = static_cast<int>(end - first);
    }
  }
  __syncthreads();  // whether one is wrong is told
  if (!shared.ends_wrong || g != 0) return;
  // Ends behind a wrong one depend on those in front of it: one thread walks over all.
  int64_t before = 0;
  for (int i = 0; i < args.groups; ++i) {
    const int64_t first = start_behind(before);
    const int end = ends[i];
    shared.first[i] = shared.rows[i] = 0;
    if (end == before) continue;
    if (end < first || end > args.rows) {
      Report(shared, DataFaultKind::kEnd, i, end);
      continue;
    }
    shared.first[i] = static_cast<int>(first);
    shared.rows[i] = static_cast<int>(end - first);
    before = end;
  }
}

// The largest value of the warp's lanes up to this one.
__device__ __forceinline__ int LargestSoFar(int value) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, value, step);
    if (lane >= step) value = max(value, other);
  }
  return value;
}

// Ids that a thread reads at a time, at most, so many loads are under way; a warp's are behind one
// another.
constexpr int kMostIds = 16;

// A warp's ids at one time, `each` a lane, from row `row0` on.
struct WarpIds {
  int each;
  unsigned row0;
  int ids[kMostIds];

  __device__ __forceinline__ void Read(const DirectoryArgs& args, Shared& shared) {
#pragma unroll
    for (int i = 0; i < kMostIds; ++i) {
      const unsigned row = row0 + i * 32 + threadIdx.x % 32;
      ids[i] = i < each && row < static_cast<unsigned>(args.rows) ? Load(args.index, row) : -1;
    }
#pragma unroll
    for (int i = 0; i < kMostIds; ++i) {
      if (ids[i] >= -1 && ids[i] < args.groups) continue;
      Report(shared, DataFaultKind::kRowId, row0 + i * 32 + threadIdx.x % 32, ids[i]);
      ids[i] = -1;
    }
  }
  __device__ __forceinline__ int Largest() const {
    int largest = -1;
#pragma unroll
    for (int i = 0; i < kMostIds; ++i) largest = max(largest, ids[i]);
    return __reduce_max_sync(0xffffffffu, largest);
  }
  // The last row's id.
  __device__ __forceinline__ int Last() const {
    int last = -1;
#pragma unroll
    for (int i = 0; i < kMostIds; ++i) {
      if (i + 1 == each) last = ids[i];
    }
    return __shfl_sync(0xffffffffu, last, 31);
  }
  // `largest`: of all ids in front of these; `in_front`: the last one of them.
  __device__ __forceinline__ void Tell(Shared& shared, int largest, int in_front) const {
    const int lane = threadIdx.x % 32;
    int* const ends = shared.before[0];
#pragma unroll
    for (int i = 0; i < kMostIds; ++i) {
      if (i == each) break;
      const int id = ids[i], row = static_cast<int>(row0 + i * 32 + lane);
      const int so_far = LargestSoFar(id);
      int before = __shfl_up_sync(0xffffffffu, so_far, 1);
      int neighbour = __shfl_up_sync(0xffffffffu, id, 1);
      const int next = __shfl_down_sync(0xffffffffu, id, 1);
      before = max(lane == 0 ? -1 : before, largest);
      if (lane == 0) neighbour = in_front;
      if (id >= 0 && (id < before || (id == before && neighbour != id))) {
        Report(shared, DataFaultKind::kRowOrder, row, id);
      } else if (id >= 0) {
        if (neighbour != id) shared.first[id] = row;
        // The last row of a run that is in order; a later run's was told and is not looked at.
        if (lane == 31 || next != id) atomicMax(&ends[id], row + 1);
      }
      largest = max(largest, __shfl_sync(0xffffffffu, so_far, 31));
      in_front = __shfl_sync(0xffffffffu, id, 31);
    }
  }
};

// A group's first and last row are where ids change. Between the two there is nobody else: an id
// that comes again, or behind a larger one, is told.
__device__ void ReadRowIds(const DirectoryArgs& args, Shared& shared) {
  __shared__ int largest[kWarps], last[kWarps];  // of each warp's ids
  static_assert(kWarps == 32, "a lane for each warp");
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto rows = static_cast<unsigned>(args.rows);
  int* const ends = shared.before[0];
  if (threadIdx.x < kMostGroups) ends[threadIdx.x] = 0;
  // Of few rows every warp has some.
  const int each = min((rows + kThreads - 1) / kThreads, unsigned{kMostIds});
  int latest = -1, carried = -1;  // the largest id in front of this chunk, and the last one
  for (unsigned base = 0; base < rows; base += kThreads * each) {
    WarpIds mine = {each, base + warp * 32 * each};
    mine.Read(args, shared);
    const int most = mine.Largest(), end = mine.Last();
    __syncthreads();  // all have read what the last chunk left
    if (lane == 0) {
      largest[warp] = most;
      last[warp] = end;
    }
    __syncthreads();  // every warp's are there
    const int of_warp = largest[lane];
    const int before = max(latest, __reduce_max_sync(0xffffffffu, lane < warp ? of_warp : -1));
    mine.Tell(shared, before, warp > 0 ? last[warp - 1] : carried);
    latest = max(latest, __reduce_max_sync(0xffffffffu, of_warp));
    carried = last[kWarps - 1];
  }
  __syncthreads();
  if (threadIdx.x < args.groups && ends[threadIdx.x] > 0) {
    shared.rows[threadIdx.x] = ends[threadIdx.x] - shared.first[threadIdx.x];
  }
}

// Empty groups start where those in front of them end, so that starts rise.
__device__ void WriteStarts(const DirectoryArgs& args, Shared& shared) {
  const int g = threadIdx.x, warp = g / 32;
  const int rows = g < args.groups ? shared.rows[g] : 0;
  // The last group with rows up to this one.
  int latest = LargestSoFar(rows > 0 ? g : -1);
  if (g % 32 == 31) shared.warp_sums[warp] = latest;
  __syncthreads();  // every warp's last is there
  for (int i = 0; i < warp; ++i) latest = max(latest, shared.warp_sums[i]);
  if (g >= args.groups) return;
  const int end = latest < 0 ? 0 : shared.first[latest] + shared.rows[latest];
  args.starts[g] = rows > 0 ? shared.first[g] : end;
  args.sizes[g] = rows;
}

__device__ void ReadGroups(const DirectoryArgs& args, Shared& shared) {
  switch (args.layout) {
    case GroupLayoutType::kOffsets:
      return ReadOffsets(args, shared);
    case GroupLayoutType::kCounts:
      return ReadCounts(args, shared);
    case GroupLayoutType::kRowIds:
      return ReadRowIds(args, shared);
    case GroupLayoutType::kEnds:
      return ReadEnds(args, shared);
  }
}

__device__ void CheckSteps(const DirectoryArgs& args, Shared& shared) {
  const int g = threadIdx.x;
  if (g < args.groups && shared.rows[g] > 0 && shared.first[g] % args.step != 0) {
    Report(shared, DataFaultKind::kColumn, g, shared.first[g]);
    shared.rows[g] = 0;
  }
  __syncthreads();  // rows and faults are there
}

// An id out of order leaves a run of its group broken: with a fault of that kind rows of other
// groups may lie in it, so that nothing is multiplied at all.
__device__ bool Broken(const Shared& shared) {
  return shared.fault != 0x7fffffff && shared.fault_kind == DataFaultKind::kRowOrder;
}

__device__ void ListTiles(const DirectoryArgs& args, Shared& shared, int list) {
  const int g = threadIdx.x;
  const int rows = g < args.groups ? shared.rows[g] : 0;
  const bool wide = rows > args.most_thin_rows;
  const int tile_rows = args.tile_rows[list];
  const int tiles = rows > 0 && wide == (list == 1) ? (rows + tile_rows - 1) / tile_rows : 0;
  int total = 0;
  const int before = SumBefore(shared, tiles, total);
  if (g < args.groups) shared.before[list][g] = before;
  if (g == 0) {
    shared.before[list][args.groups] = total;
    *args.lists[list].count = total;
  }
  __syncthreads();  // sums of all groups are there
  for (int i = g; i < total; i += kThreads) {
    int low = 0, high = args.groups - 1;  // the last group with as many tiles in front of it
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (shared.before[list][middle] <= i) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const bool counts = args.layout == GroupLayoutType::kCounts;
    const int first = shared.first[low];
    args.lists[list].tiles[i] = {low, counts ? low : 0,
                                 first + (i - shared.before[list][low]) * tile_rows,
                                 first + shared.rows[low]};
  }
}

__global__ void __launch_bounds__(kThreads) Directory(const __grid_constant__ DirectoryArgs args) {
  __shared__ Shared shared;
  ptx::GridDependencyLaunch();  // the kernels behind it make themselves ready meanwhile
  ptx::GridDependencyWait();
  if (threadIdx.x < kMostGroups) shared.first[threadIdx.x] = shared.rows[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    shared.fault = 0x7fffffff;
    shared.ends_wrong = false;
  }
  __syncthreads();
  ReadGroups(args, shared);
  __syncthreads();  // first, rows and faults are there
  if (args.step > 1) CheckSteps(args, shared);
  if (Broken(shared) && threadIdx.x < kMostGroups) shared.rows[threadIdx.x] = 0;
  if (threadIdx.x == 0 && shared.fault != 0x7fffffff) {
    const bool ids =
        shared.fault_kind == DataFaultKind::kRowId || shared.fault_kind == DataFaultKind::kRowOrder;
    const int4 fault =
        make_int4(static_cast<int>(shared.fault_kind), shared.fault, shared.fault_value,
                  ids                                           ? args.groups - 1
                  : shared.fault_kind == DataFaultKind::kColumn ? args.step
                                                                : args.rows);
    *reinterpret_cast<int4*>(args.fault) = fault;
  }
  __syncthreads();
  for (int list = 0; list < kTileLists; ++list) {
    if (args.lists[list].count != nullptr) ListTiles(args, shared, list);
    __syncthreads();
  }
  if (args.starts != nullptr) WriteStarts(args, shared);
}

__global__ void __launch_bounds__(256) Owners(const __grid_constant__ OwnersArgs args) {
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  const int64_t step = static_cast<int64_t>(gridDim.x) * 256;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < args.all_rows;
       i += step) {
    if (args.counts) {
      const int item = static_cast<int>(i / args.rows);
      args.owners[i] = i - static_cast<int64_t>(item) * args.rows < args.sizes[item] ? item : -1;
      continue;
    }
    int low = 0, high = args.groups - 1;  // the last group that starts here or before
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (args.starts[middle] <= i) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int64_t inside = i - args.starts[low];
    args.owners[i] = inside >= 0 && inside < args.sizes[low] ? low : -1;
  }
}

}  // namespace

cudaError_t LaunchDirectory(const DirectoryArgs& args, cudaStream_t stream) {
  if (args.groups < 1 || args.groups > kMostGroups || args.fault == nullptr) {
    return cudaErrorInvalidValue;
  }
  return LaunchKernel(Directory, dim3(1), kThreads, args.programmatic, stream, args);
}

cudaError_t LaunchOwners(const OwnersArgs& args, cudaStream_t stream) {
  if (args.all_rows == 0) return cudaSuccess;
  return LaunchKernel(Owners, GridOf(CeilDiv(args.all_rows, 256)), 256, true, stream, args);
}

}  // namespace gemmd::kernels::cuda
