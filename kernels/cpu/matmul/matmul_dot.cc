#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/bound.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul/epilogue.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/ops/codec.h"
#include "kernels/cpu/ops/convert.h"

namespace gemmd::kernels::cpu {
namespace {

using absl::StrCat;

constexpr int64_t kMaxRows = 32;
constexpr int64_t kMaxAElements = 1
                                  << 20;  // a as FP32 is 4 MiB: it is read again for each row of b
constexpr int64_t kBlockN = 4096;         // columns of sums kept at once
constexpr int64_t kGrainElements = 1 << 18;  // of b, about 50 us
constexpr int64_t kLanes = 16;

// With i8 an FP32 sum of 1024 products is exact (matmul_int8.cc); the chunks' sums meet in double.
constexpr int64_t kLongChunk = 1024;

typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

// Sums of kRows rows of a against one run of b. kUnroll chains a row hide the latency of an add.
template <int kRows, int kUnroll>
GEMMD_ALWAYS_INLINE void DotRows(const float* a, int64_t lda, const float* b, int64_t n,
                                 float* out) {
  Lanes sums[kRows][kUnroll] = {};
  int64_t i = 0;
  for (; i + kUnroll * kLanes <= n; i += kUnroll * kLanes) {
    for (int u = 0; u < kUnroll; ++u) {
      const Lanes y = *reinterpret_cast<const Lanes*>(b + i + u * kLanes);
      for (int r = 0; r < kRows; ++r) {
        sums[r][u] += *reinterpret_cast<const Lanes*>(a + r * lda + i + u * kLanes) * y;
      }
    }
  }
  for (; i < n; i += kLanes) {
    const Lanes y = *reinterpret_cast<const Lanes*>(b + i);
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] += *reinterpret_cast<const Lanes*>(a + r * lda + i) * y;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    Lanes total = sums[r][0];
    for (int u = 1; u < kUnroll; ++u) total += sums[r][u];
    float lanes[kLanes];
    std::memcpy(lanes, &total, sizeof(lanes));
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    }
    out[r] = lanes[0];
  }
}

struct Chunk {
  DType dtype;
  const std::byte* b;  // n elements, unit stride
  const float* a;      // rows x n, zeros up to the next multiple of kLanes
  int64_t lda;
  int64_t rows;
  int64_t n;
};

// out[i] = a's row i . b, n at most kLongChunk.
GEMMD_ALWAYS_INLINE void DotChunkBody(const Chunk& chunk, float* out) {
  alignas(64) float buffer[kLongChunk];
  const int64_t padded = (chunk.n + kLanes - 1) / kLanes * kLanes;
  const float* b = reinterpret_cast<const float*>(chunk.b);
  if (chunk.dtype != DType::kF32 || padded != chunk.n) {
    WithDType(
        chunk.dtype, [&]<DType T>() __attribute__((always_inline)) {
          const auto* in = reinterpret_cast<const typename Codec<T>::Stored*>(chunk.b);
          for (int64_t i = 0; i < chunk.n; ++i) buffer[i] = Codec<T>::Load(in[i]);
        });
    for (int64_t i = chunk.n; i < padded; ++i) buffer[i] = 0;
    b = buffer;
  }
  int64_t row = 0;
  for (; row + 4 <= chunk.rows; row += 4) {
    DotRows<4, 1>(chunk.a + row * chunk.lda, chunk.lda, b, padded, out + row);
  }
  if (row + 2 <= chunk.rows) {
    DotRows<2, 2>(chunk.a + row * chunk.lda, chunk.lda, b, padded, out + row);
    row += 2;
  }
  if (row < chunk.rows) {
    DotRows<1, 4>(chunk.a + row * chunk.lda, chunk.lda, b, padded, out + row);
  }
}
GEMMD_ISA_CLONES(DotChunk, (const Chunk& chunk, float* out), (chunk, out))

bool HasBlocksAlongK(ScaleGranularity granularity) {
  return granularity == ScaleGranularity::kBlock1x128 ||
         granularity == ScaleGranularity::kBlock128x128;
}

int64_t ChunkOf(const MatmulProblem& p) {
  return HasBlocksAlongK(p.a.granularity) || HasBlocksAlongK(p.b.granularity) ? kScaleBlock
                                                                              : kLongChunk;
}

// a as FP32 without scales, [m, lda], and a's factor for each {chunk, row}.
struct LoadedA {
  const float* values;
  int64_t lda;
  const double* factors;
};

LoadedA LoadA(const MatmulRun& run, int64_t batch, int64_t chunk) {
  const MatmulProblem& p = run.problem;
  const BoundMatrix a = BindMatrix(run.op.a.values, run.context.bindings, batch);
  const BoundScales scales = BindScales(run.op.a, run.context.bindings, batch);
  const int64_t lda = (p.k + kLanes - 1) / kLanes * kLanes;
  const int64_t chunks = (p.k + chunk - 1) / chunk;
  float* values = run.context.scratch.Get<float>(Scratch::kPanelA, p.m * lda);
  double* factors = run.context.scratch.Get<double>(Scratch::kFactors, p.m * chunks);
  alignas(64) std::byte dense[kLongChunk * 4];
  for (int64_t row = 0; row < p.m; ++row) {
    float* line = values + row * lda;
    for (int64_t k = 0; k < p.k; k += kLongChunk) {
      const int64_t n = std::min(kLongChunk, p.k - k);
      const std::byte* src = a.At(row, k);
      if (a.col_stride != 1) {
        Gather(SizeBytes(a.dtype), src, a.col_stride, n, dense);
        src = dense;
      }
      ToF32(a.dtype, src, n, line + k);
    }
    std::fill(line + p.k, line + lda, 0.0f);
    for (int64_t c = 0; c < chunks; ++c) factors[c * p.m + row] = scales.Factor(row, c * chunk);
  }
  return {values, lda, factors};
}

void RunColumns(const MatmulRun& run, const Tile& tile, const LoadedA& a, int64_t chunk) {
  const MatmulProblem& p = run.problem;
  const BoundMatrix b = BindMatrix(run.op.b.values, run.context.bindings, tile.batch);
  const BoundScales b_scales = BindScales(run.op.b, run.context.bindings, tile.batch);
  double* sums = run.context.scratch.Get<double>(Scratch::kAccumulator, tile.rows * tile.cols);
  const int64_t grain = std::max<int64_t>(1, kGrainElements / (p.k + 16 * p.m));
  run.context.For(tile.cols, grain, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      double column[kMaxRows] = {};
      for (int64_t k = 0; k < p.k; k += chunk) {
        const int64_t n = std::min(chunk, p.k - k);
        float dots[kMaxRows];
        DotChunk({b.dtype, b.At(tile.col0 + j, k), a.values + k, a.lda, tile.rows, n}, dots);
        const double b_factor = b_scales.Factor(tile.col0 + j, k);
        const double* a_factors = a.factors + k / chunk * p.m;
        for (int64_t i = 0; i < tile.rows; ++i) column[i] += dots[i] * (a_factors[i] * b_factor);
      }
      for (int64_t i = 0; i < tile.rows; ++i) sums[i * tile.cols + j] = column[i];
    }
  });
  StoreTile(run, tile, sums, tile.cols);
}

}  // namespace

std::string DotWhyNot(const MatmulProblem& p) {
  if (p.m > kMaxRows) return StrCat("m=", p.m, " is above ", kMaxRows);
  if (p.b.layout != Layout::kKContiguous) return "b has no unit stride along k";
  if (p.k > kMaxAElements / std::max<int64_t>(p.m, 1)) {
    return StrCat("m*k of m=", p.m, " k=", p.k, " is above ", kMaxAElements, ", what a may take");
  }
  return "";
}

double DotSeconds(const MatmulProblem& p, const Machine& machine) {
  const double chunks = std::max(1.0, static_cast<double>(p.k) / ChunkOf(p));
  const double groups = (p.m + 3) / 4;
  // Per row of b and chunk: convert, then about 8 ns of reduction a row and a quarter of sgemm's
  // rate.
  const double seconds = 1.0 * p.n * chunks * (15e-9 + 6e-9 * p.m) +
                         1.0 * p.n * p.k / (machine.convert_per_s / machine.threads) +
                         8.0 * groups * p.n * p.k / (machine.sgemm_thread_flops / 2);
  const double threads = seconds < 100e-6 ? 1 : machine.threads;
  return p.batch *
         (0.4e-6 + std::max(seconds / threads, p.bytes() / p.batch / machine.memory_bytes_per_s));
}

void RunDot(const MatmulRun& run) {
  if (run.product_is_zero()) return StoreWithoutProduct(run);
  const MatmulProblem& p = run.problem;
  const int64_t chunk = ChunkOf(p);
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    if (run.context.StoppedBefore(batch, p.flops() / p.batch)) return;
    const LoadedA a = LoadA(run, batch, chunk);
    for (int64_t n0 = 0; n0 < p.n; n0 += kBlockN) {
      if (n0 > 0 && run.context.Stopped()) return;
      RunColumns(run, {batch, 0, p.m, n0, std::min(kBlockN, p.n - n0)}, a, chunk);
    }
  }
}

}  // namespace gemmd::kernels::cpu
