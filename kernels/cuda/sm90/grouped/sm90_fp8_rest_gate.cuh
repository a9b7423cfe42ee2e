// A rest's results through the gate. One warpgroup has 64 gates and the other their ups, for all of
// the rest's rows; a row's 128 columns are two CTAs'. So products go from one warpgroup to the
// other, and largest magnitudes from one CTA to the other, which come while the wide tile is
// stored.

#pragma once

#include "kernels/cuda/sm90/grouped/sm90_fp8_rest.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig W>
struct RestGate {
  static constexpr GemmConfig R = RestOf(W);
  static constexpr int kChunks = kRestRows / 8;
  // A warpgroup finishes half of the rows: its first half, or its second.
  static constexpr int kMine = kChunks / 2, kRows = kMine * 8;
  // In staging: what warpgroups pass on, of each thread; and each warp's largest magnitudes by row.
  static constexpr int kProductBytes = kMine * 128 * 8;
  static constexpr uint32_t kWarpMaxima = 2 * kProductBytes;
  static constexpr int kPitch = 64 + 16;  // of a row's codes
  static_assert(W.gates && kWarpMaxima + 2 * kRows * 4 * 4 <= W.store_bytes());
  static_assert(2 * kRows * kPitch <= W.store_bytes());

  const GatedArgs& args;
  const float alpha;
  uint32_t staging;
  uint32_t maxima;  // of this turn, by row: the other CTA's, each beside its turn in one word
  int rank, turn, warp, lane, group, block;
  float mine = 0;  // a thread for each of the warpgroup's rows: its largest magnitude here
  float y[4 * kMine];

  // Largest magnitudes are two turns' by turns. A CTA tells those of a turn when it has been told
  // those of the turn in front, which the other tells behind its reads of the turn before that.
  __device__ RestGate(const GroupedLaunch& launch, const SmemLayout<W>& smem, const GroupPlace& at,
                      int rank, int turn, int warp, int lane)
      : args(launch.gated),
        alpha(launch.gemm.args.alpha),
        staging(smem.base + SmemLayout<W>::kStore),
        maxima(smem.base + RestRing<W>::kMaxima + turn % 2 * kRestRows * 8),
        rank(rank),
        turn(turn),
        warp(warp),
        lane(lane),
        group(warp / 4),
        block(at.n0 / W.block_n()) {}

  static __device__ __forceinline__ void Clear(const SmemLayout<W>& smem, int lane) {
    for (int i = lane; i < 2 * kRestRows; i += 32) {
      ptx::StoreShared2(smem.base + RestRing<W>::kMaxima + i * 8, make_float2(0, 0));
    }
    ptx::FenceCluster();
  }

  // By all math warps.
  __device__ void Sync() const {
    __syncwarp();
    ptx::NamedBarrier(kStagingBarrier, W.math_threads());
  }
  // By those of a warpgroup.
  __device__ void SyncGroup() const {
    __syncwarp();
    ptx::NamedBarrier(kFoldFullBarrier + group, 128);
  }
  __device__ __forceinline__ int Thread() const { return warp % 4 * 32 + lane; }

  // From products to y = act(gate) * up of this warpgroup's rows, and their largest magnitudes to
  // the other CTA.
  __device__ __forceinline__ void Tell(float (&product)[R.result_regs()]) {
    Exchange(product);
    FindMaxima();
  }

  // Rounded to BF16, two of a row of the weights to a word.
  static __device__ __forceinline__ uint32_t Rounded(float x, float y) {
    return Pack2(x, y, OutType::kBF16);
  }
  __device__ __forceinline__ void Exchange(float (&product)[R.result_regs()]) {
    if (alpha != 1.0f) {
#pragma unroll
      for (int i = 0; i < R.result_regs(); ++i) product[i] = __fmul_rn(product[i], alpha);
    }
    const auto chunk = [&](int j) {
      return make_float2(__uint_as_float(Rounded(product[4 * j], product[4 * j + 1])),
                         __uint_as_float(Rounded(product[4 * j + 2], product[4 * j + 3])));
    };
    const uint32_t mine = staging + Thread() * 8;
    const bool first = group == 0;
    Sync();  // the last tile has been read
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
      const float2 upper = chunk(kMine + j), lower = chunk(j);
      ptx::StoreShared2(mine + (1 - group) * kProductBytes + j * 128 * 8, first ? upper : lower);
    }
    Sync();
    float gate[4 * kMine], up[4 * kMine];
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
      const float2 upper = chunk(kMine + j), lower = chunk(j);
      const float2 own = first ? lower : upper;
      const float2 other = ptx::LoadShared2(mine + group * kProductBytes + j * 128 * 8);
      Unpack(first ? own : other, gate + 4 * j);
      Unpack(first ? other : own, up + 4 * j);
    }
    MultiplyGated(args, gate, up, y);
  }
  static __device__ __forceinline__ void Unpack(float2 packed, float* to) {
    const uint32_t upper = __float_as_uint(packed.x), lower = __float_as_uint(packed.y);
    to[0] = __uint_as_float(upper << 16);
    to[1] = __uint_as_float(upper & 0xffff0000u);
    to[2] = __uint_as_float(lower << 16);
    to[3] = __uint_as_float(lower & 0xffff0000u);
  }

  // Where warp `i` of this warpgroup leaves its largest magnitude of a row.
  __device__ __forceinline__ uint32_t MaximumAt(int row, int i) const {
    return staging + kWarpMaxima + ((group * kRows + row) * 4 + i) * 4;
  }
  __device__ __forceinline__ void FindMaxima() {
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
      float left = AddMagnitude<false>(AddMagnitude<false>(0.0f, y[4 * j]), y[4 * j + 2]);
      float right = AddMagnitude<false>(AddMagnitude<false>(0.0f, y[4 * j + 1]), y[4 * j + 3]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        left = ptx::MaxNaN(left, __shfl_xor_sync(0xffffffffu, left, step));
        right = ptx::MaxNaN(right, __shfl_xor_sync(0xffffffffu, right, step));
      }
      if (lane / 4 == j) {
        ptx::StoreShared(MaximumAt(j * 8 + lane % 4 * 2, warp % 4), left);
        ptx::StoreShared(MaximumAt(j * 8 + lane % 4 * 2 + 1, warp % 4), right);
      }
    }
    SyncGroup();
    if (Thread() < kRows) {
      const float4 of_warps = ptx::LoadShared4(MaximumAt(Thread(), 0));
      mine = ptx::MaxNaN(ptx::MaxNaN(of_warps.x, of_warps.y), ptx::MaxNaN(of_warps.z, of_warps.w));
      ptx::StoreRemote8(ptx::MapToRank(maxima + (group * kRows + Thread()) * 8, 1 - rank),
                        static_cast<uint64_t>(turn) << 32 | __float_as_uint(mine));
    }
    Sync();  // the wide tile may be staged
  }

  __device__ __forceinline__ float MaximumOfPeer() const {
    uint64_t note;
    do {
      note = ptx::LoadFromPeer8(maxima + (group * kRows + Thread()) * 8);
    } while (static_cast<int>(note >> 32) != turn);
    return __uint_as_float(static_cast<uint32_t>(note));
  }

  // Codes and scales. `at`: the rest's rows.
  __device__ __forceinline__ void Store(const GroupPlace& at) {
    Sync();  // the wide tile has been read from staging
    const uint32_t divisors = staging + 2 * kRows * kPitch + group * kRows * 8;
    static_assert(2 * kRows * kPitch + 2 * kRows * 8 <= W.store_bytes());
    if (Thread() < kRows) {
      const float scale = ScaleOf<false>(ptx::MaxNaN(mine, MaximumOfPeer()));
      const int row = at.row0 + group * kRows + Thread();
      if (rank == 0 && row < at.row_end) {
        args.scales[at.item * args.scales_batch + row * args.scales_row +
                    block * args.scales_block] = scale;
      }
      ptx::StoreShared2(divisors + Thread() * 8,
                        make_float2(scale, MakeScaleDivisor(scale).negative_reciprocal));
    }
    SyncGroup();
    const uint32_t codes = staging + group * kRows * kPitch;
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
#pragma unroll
      for (int right = 0; right < 2; ++right) {
        const int row = j * 8 + lane % 4 * 2 + right;
        const float2 divisor = ptx::LoadShared2(divisors + row * 8);
        const uint32_t two =
            GateFinish<R>::CodesOfRow(y[4 * j + right], y[4 * j + 2 + right], divisor.x, divisor.y);
        const uint32_t to = codes + row * kPitch + warp % 4 * 16 + lane / 4;
        ptx::StoreShared8(to, two);
        ptx::StoreShared8(to + 8, two >> 8);
      }
    }
    SyncGroup();
    if (Thread() < kRows * 4) {
      const int row = Thread() / 4, unit = Thread() % 4;
      const int to = at.row0 + group * kRows + row;
      ptx::StoreGlobal4If(to < at.row_end,
                          static_cast<uint8_t*>(args.dst) + at.item * args.dst_batch +
                              to * args.dst_row + block * kGateCols + rank * 64 + unit * 16,
                          ptx::LoadShared4(codes + row * kPitch + unit * 16));
    }
    __syncwarp();
  }
};

}  // namespace gemmd::kernels::cuda
