// Weighted sums for many tokens. One warp of each CTA has the copy engine fetch parts of a token's
// rows, a few tokens ahead; the others add them up. Loads by threads leave memory idle between a
// CTA's numbers, its rows and its end.

#include "kernels/cuda/experts/combine.cuh"
#include "kernels/cuda/ops/launch.cuh"
#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/ptx/l2_policy.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/shared.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kMostRows = 8;      // of a token
constexpr int kMostChunks = 448;  // of 16 bytes, in a part of a row: a thread for each
constexpr int kStages = 4;
constexpr int kSummingWarps = kMostChunks / 32;
constexpr int kThreads = kMostChunks + 32;
constexpr uint32_t kPartBytes = kMostChunks * 16;
constexpr uint32_t kStageBytes = kMostRows * kPartBytes;
// Behind the rows, by stage: the weights, which rows there are, and the barriers.
constexpr uint32_t kNotes = kStages * kStageBytes;
constexpr uint32_t kNoteBytes = 64;
constexpr uint32_t kMask = kMostRows * 4, kFull = kMask + 8, kEmpty = kFull + 8;
constexpr uint32_t kSmemBytes = kNotes + kStages * kNoteBytes;
static_assert(kEmpty + 8 <= kNoteBytes && kSmemBytes <= 232448, "sm_90, opt-in limit of one block");
constexpr int64_t kLeastTokens = 1024;

struct Stage {
  uint32_t rows;
  uint32_t note;
  uint32_t parity;

  __device__ __forceinline__ Stage(uint32_t base, int turn)
      : rows(base + turn % kStages * kStageBytes),
        note(base + kNotes + turn % kStages * kNoteBytes),
        parity(turn / kStages & 1) {}
};

struct Choice {
  int64_t place = -1;
  float weight = 0;

  __device__ __forceinline__ Choice(const CombineArgs& args, int64_t token, int lane, bool tells) {
    if (token >= args.tokens || lane >= args.top_k) return;
    place = PlaceOf(args, token, lane, tells);
    weight = args.weights[token * args.weights_row + lane * args.weights_col];
  }
};

// Item i: part i % parts of token i / parts. `part_bytes` of a row, of the last part what is left.
__device__ __forceinline__ void FetchRows(const CombineArgs& args, int parts, int part_bytes,
                                          int row_bytes, int element_bytes, uint32_t base,
                                          int lane) {
  const int items = static_cast<int>(args.tokens) * parts;
  int item = static_cast<int>(blockIdx.x);
  Choice choice(args, item / parts, lane, item % parts == 0);
  for (int turn = 0; item < items; ++turn) {
    const int part = item % parts;
    const int next = item + static_cast<int>(gridDim.x);
    const Choice next_choice(args, next / parts, lane, next % parts == 0);
    const Stage stage(base, turn);
    const uint32_t mask = __ballot_sync(0xffffffffu, choice.place >= 0);
    const int first = part * part_bytes, bytes = min(part_bytes, row_bytes - first);
    ptx::MbarrierWait(stage.note + kEmpty, stage.parity ^ 1);
    if (lane < kMostRows) ptx::StoreShared(stage.note + lane * 4, choice.weight);
    if (lane == 0) ptx::StoreShared(stage.note + kMask, __uint_as_float(mask));
    __syncwarp();
    if (lane == 0) ptx::MbarrierArriveExpectTx(stage.note + kFull, __popc(mask) * bytes);
    __syncwarp();
    if (choice.place >= 0) {
      ptx::BulkLoad(
          stage.note + kFull, stage.rows + lane * kPartBytes,
          static_cast<const char*>(args.src) + choice.place * args.src_row * element_bytes + first,
          bytes, ptx::kEvictFirst);
    }
    choice = next_choice;
    item = next;
  }
}

template <ElementType kFrom>
__device__ __forceinline__ void AddUpRows(const CombineArgs& args, int parts, int part_bytes,
                                          int row_bytes, uint32_t base) {
  constexpr int kElements = Chunk<kFrom>::kElements;
  const int items = static_cast<int>(args.tokens) * parts;
  const int mine = static_cast<int>(threadIdx.x) * 16;
  int turn = 0;
  for (int item = static_cast<int>(blockIdx.x); item < items; item += gridDim.x, ++turn) {
    const int token = item / parts, first = (item - token * parts) * part_bytes;
    const Stage stage(base, turn);
    ptx::MbarrierWait(stage.note + kFull, stage.parity);
    const uint32_t mask = __float_as_uint(ptx::LoadShared(stage.note + kMask));
    const bool has = mine < min(part_bytes, row_bytes - first);
    float sums[kElements] = {};
    if (has) {
#pragma unroll
      for (int j = 0; j < kMostRows; ++j) {
        if ((mask >> j & 1) == 0) continue;
        const float4 v = ptx::LoadShared4(stage.rows + j * kPartBytes + mine);
        const Chunk<kFrom> chunk = {make_uint4(__float_as_uint(v.x), __float_as_uint(v.y),
                                               __float_as_uint(v.z), __float_as_uint(v.w))};
        const float weight = ptx::LoadShared(stage.note + j * 4);
        float x[kElements];
        chunk.Expand(x);
#pragma unroll
        for (int i = 0; i < kElements; ++i) sums[i] = __fmaf_rn(weight, x[i], sums[i]);
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::MbarrierArrive(stage.note + kEmpty);
    if (has) {
      StoreSums(args, token * args.dst_row + (first + mine) / ElementBytes(kFrom), sums);
    }
  }
}

template <ElementType kFrom>
__global__ void __launch_bounds__(kThreads, 1)
    CombineRows(const __grid_constant__ CombineArgs args, int parts, int part_bytes) {
  extern __shared__ __align__(128) uint8_t smem[];
  const uint32_t base = ptx::SmemAddress(smem);
  const int row_bytes = static_cast<int>(args.n) * ElementBytes(kFrom);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      const Stage stage(base, i);
      ptx::MbarrierInit(stage.note + kFull, 1);
      ptx::MbarrierInit(stage.note + kEmpty, kSummingWarps);
    }
    ptx::FenceMbarrierInit();
  }
  __syncthreads();  // the barriers are there
  ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
  if (threadIdx.x < kMostChunks) {
    AddUpRows<kFrom>(args, parts, part_bytes, row_bytes, base);
  } else {
    FetchRows(args, parts, part_bytes, row_bytes, ElementBytes(kFrom), base, threadIdx.x % 32);
  }
}

template <ElementType kFrom>
cudaError_t LaunchOf(const CombineArgs& args, cudaStream_t stream) {
  int device = 0, sms = 0;
  cudaError_t code = cudaGetDevice(&device);
  if (code == cudaSuccess) {
    code = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  }
  if (code == cudaSuccess) {
    code = cudaFuncSetAttribute(CombineRows<kFrom>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kSmemBytes);
  }
  if (code != cudaSuccess) return code;
  const int64_t chunks = args.n * ElementBytes(kFrom) / 16;
  const int64_t parts = CeilDiv(chunks, kMostChunks);
  const int64_t part_bytes = CeilDiv(chunks, parts) * 16;
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(sms < args.tokens * parts ? sms : args.tokens * parts));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSmemBytes;
  config.stream = stream;
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = args.programmatic ? 1 : 0;
  return cudaLaunchKernelEx(&config, CombineRows<kFrom>, args, static_cast<int>(parts),
                            static_cast<int>(part_bytes));
}

}  // namespace

bool TakesCombineRows(const CombineArgs& args) {
  const int64_t row_bytes = args.n * ElementBytes(args.src_type);
  return args.tokens >= kLeastTokens && args.top_k <= kMostRows && row_bytes >= 1024 &&
         args.tokens * CeilDiv(row_bytes, kPartBytes) <= INT32_MAX / 2;
}

cudaError_t LaunchCombineRows(const CombineArgs& args, cudaStream_t stream) {
  return BySourceType(args, [&]<ElementType kFrom>() { return LaunchOf<kFrom>(args, stream); });
}

}  // namespace gemmd::kernels::cuda
