#include "kernels/cpu/ops/quantize.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/synchronization/mutex.h"
#include "kernels/cpu/bound.h"
#include "kernels/cpu/ops/codec.h"
#include "kernels/cpu/ops/convert.h"
#include "kernels/cpu/ops/run_op.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kChunk = 512;
constexpr int64_t kGrainElements = 1 << 16;
constexpr uint32_t kInfinityBits = 0x7f800000u;

// Magnitudes as bits: they order like the numbers, and NaN is above infinity.
struct AbsMax {
  uint32_t any = 0;
  uint32_t finite = 0;  // infinities and NaN left out
  void Add(const AbsMax& other) {
    any = std::max(any, other.any);
    finite = std::max(finite, other.finite);
  }
};

GEMMD_ALWAYS_INLINE void FindAbsMaxBody(const float* x, int64_t n, AbsMax* out) {
  uint32_t any = out->any;
  uint32_t finite = out->finite;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    const uint32_t counted = bits < kInfinityBits ? bits : 0u;
    any = bits > any ? bits : any;
    finite = counted > finite ? counted : finite;
  }
  out->any = any;
  out->finite = finite;
}
GEMMD_ISA_CLONES(FindAbsMax, (const float* x, int64_t n, AbsMax* out), (x, n, out))

float ScaleOf(const AbsMax& max, DType dtype) {
  if (dtype == DType::kE4M3 && max.any >= kInfinityBits) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (max.finite == 0) return 1.0f;
  const float scale = std::bit_cast<float>(max.finite) / static_cast<float>(Info(dtype).max_finite);
  return std::max(scale, std::numeric_limits<float>::min());
}

// One batch item.
struct Job {
  const RunContext& context;
  BoundMatrix src;
  BoundMatrix dst;
  BoundScales scales;
  const int32_t* rows = nullptr;  // of dst, their numbers in src; null: as they stand
};

// Rows of dst, and where they begin in src.
struct Block {
  int64_t row0, rows, k0, ks, src0;
};

// Up to kChunk elements of src's row as FP32. `storage` and `dense` hold kChunk elements.
const float* LoadRun(const BoundMatrix& src, int64_t row, int64_t k, int64_t n, std::byte* dense,
                     float* storage) {
  const std::byte* from = src.At(row, k);
  if (src.col_stride != 1) {
    Gather(SizeBytes(src.dtype), from, src.col_stride, n, dense);
    from = dense;
  }
  if (src.dtype == DType::kF32) return reinterpret_cast<const float*>(from);
  ToF32(src.dtype, from, n, storage);
  return storage;
}

// A row may be of any length: whether to leave the rest of it.
bool StoppedAt(const Job& job, int64_t k) {
  return k % kGrainElements == kGrainElements - kChunk && job.context.Stopped();
}

AbsMax AbsMaxOf(const Job& job, const Block& block) {
  alignas(64) std::byte dense[kChunk * 4];
  alignas(64) float storage[kChunk];
  AbsMax max;
  for (int64_t row = block.src0; row < block.src0 + block.rows; ++row) {
    for (int64_t k = block.k0; k < block.k0 + block.ks; k += kChunk) {
      if (StoppedAt(job, k)) return max;
      const int64_t n = std::min(kChunk, block.k0 + block.ks - k);
      FindAbsMax(LoadRun(job.src, row, k, n, dense, storage), n, &max);
    }
  }
  return max;
}

void StoreBlock(const Job& job, const Block& block, float scale) {
  alignas(64) std::byte dense[kChunk * 4];
  alignas(64) float storage[kChunk];
  alignas(64) std::byte codes[kChunk];
  for (int64_t row = block.row0; row < block.row0 + block.rows; ++row) {
    for (int64_t k = block.k0; k < block.k0 + block.ks; k += kChunk) {
      if (StoppedAt(job, k)) return;
      const int64_t n = std::min(kChunk, block.k0 + block.ks - k);
      const int64_t from = row - block.row0 + block.src0;
      const float* values = LoadRun(job.src, from, k, n, dense, storage);
      std::byte* target = job.dst.At(row, k);
      const bool direct = job.dst.col_stride == 1;
      FromF32Divided(job.dst.dtype, values, n, scale, direct ? target : codes);
      if (!direct) Scatter(1, codes, n, target, job.dst.col_stride);
    }
  }
}

// One scale for everything: every row's maximum first, then the values.
void QuantizeTensor(const Job& job) {
  const int64_t rows = job.src.rows;
  const int64_t ks = job.src.cols;
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(ks, 1));
  absl::Mutex mutex;
  AbsMax max;
  job.context.For(rows, grain, [&](int64_t begin, int64_t end) {
    const AbsMax part = AbsMaxOf(job, {begin, end - begin, 0, ks, begin});
    absl::MutexLock lock(&mutex);
    max.Add(part);
  });
  const float scale = ScaleOf(max, job.dst.dtype);
  *job.scales.At(0, 0) = scale;
  job.context.For(rows, grain, [&](int64_t begin, int64_t end) {
    StoreBlock(job, {begin, end - begin, 0, ks, begin}, scale);
  });
}

// The row of src that goes to `row` of dst; -1 for none.
int64_t SourceRow(const Job& job, int64_t row) {
  if (job.rows == nullptr) return row;
  const int32_t from = job.rows[row];
  if (from >= -1 && from < job.src.rows) return from;
  if (job.context.faults != nullptr) {
    job.context.faults->Report({DataFaultKind::kRow, static_cast<int32_t>(row), from,
                                static_cast<int32_t>(job.src.rows - 1)});
  }
  return -1;
}

// Blocks of block_rows x block_k, each with a scale; a thread takes whole bands of rows.
void QuantizeBlocks(const Job& job, int64_t block_rows, int64_t block_k) {
  const int64_t rows = job.dst.rows;
  const int64_t ks = job.src.cols;
  const int64_t bands = (rows + block_rows - 1) / block_rows;
  const int64_t grain =
      std::max<int64_t>(1, kGrainElements / std::max<int64_t>(ks * block_rows, 1));
  job.context.For(bands, grain, [&](int64_t begin, int64_t end) {
    int64_t since_look = 0;  // elements
    for (int64_t band = begin; band < end; ++band) {
      Block block{band * block_rows, std::min(block_rows, rows - band * block_rows), 0, 0, 0};
      block.src0 = SourceRow(job, block.row0);
      if (block.src0 < 0) continue;
      // A row without elements still has its scale, of a block that is all zero.
      for (block.k0 = 0; block.k0 == 0 || block.k0 < ks; block.k0 += block_k) {
        if (since_look >= kGrainElements) {
          if (job.context.Stopped()) return;
          since_look = 0;
        }
        block.ks = std::min(block_k, ks - block.k0);
        since_look += block.rows * block.ks;
        if (ks == 0 && block_k == kScaleBlock) break;  // no blocks along k, no scales
        const float scale = ScaleOf(AbsMaxOf(job, block), job.dst.dtype);
        *job.scales.At(block.row0, block.k0) = scale;
        StoreBlock(job, block, scale);
      }
    }
  });
}

}  // namespace

float QuantizeRun(DType dtype, const float* values, int64_t n, std::byte* codes) {
  AbsMax max;
  FindAbsMax(values, n, &max);
  const float scale = ScaleOf(max, dtype);
  FromF32Divided(dtype, values, n, scale, codes);
  return scale;
}

void RunOp(const QuantizeOp& op, const RunContext& context) {
  const bool batched = op.src.shape.rank == 3;
  const int64_t batches = batched ? op.src.shape[0] : 1;
  const int rank = op.src.shape.rank;
  const double elements = 1.0 * op.src.shape[rank - 2] * op.src.shape[rank - 1];
  for (int64_t batch = 0; batch < batches; ++batch) {
    if (context.StoppedBefore(batch, elements)) return;
    const Job job{
        context, BindMatrix(op.src, context.bindings, batch),
        BindMatrix(op.dst, context.bindings, batch),
        BindScales(op.scales, op.granularity, batched, context.bindings, batch),
        op.rows ? reinterpret_cast<const int32_t*>(Address(*op.rows, context.bindings)) : nullptr};
    switch (op.granularity) {
      case ScaleGranularity::kNone:  // refused by ValidateOps
        return;
      case ScaleGranularity::kPerTensor:
        QuantizeTensor(job);
        break;
      case ScaleGranularity::kPerRow:
        QuantizeBlocks(job, 1, std::max<int64_t>(job.src.cols, 1));
        break;
      case ScaleGranularity::kBlock1x128:
        QuantizeBlocks(job, 1, kScaleBlock);
        break;
      case ScaleGranularity::kBlock128x128:
        QuantizeBlocks(job, kScaleBlock, kScaleBlock);
        break;
    }
  }
}

}  // namespace gemmd::kernels::cpu
