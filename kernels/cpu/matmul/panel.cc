#include "kernels/cpu/matmul/panel.h"

#include <cblas.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/ops/convert.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kGrainElements =
    128 * 1024;                  // about 40 us of conversion: worth a thread's waking
constexpr int64_t kChunk = 512;  // elements gathered at once, on the stack

// Keeps rows off the same cache sets: panels are often a power of two wide.
constexpr int64_t kPadding = 16;

int64_t GrainOf(int64_t line) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(line, 1));
}

bool IsReady(const BoundMatrix& values, const BoundScales& scales, const Block& block,
             Panel& panel) {
  if (values.dtype != DType::kF32 || scales.data != nullptr) return false;
  const auto* data = reinterpret_cast<const float*>(values.At(block.row0, block.k0));
  constexpr int64_t kMaxLd = std::numeric_limits<int>::max();
  if (values.col_stride == 1 && values.row_stride >= block.ks && values.row_stride <= kMaxLd) {
    panel = {data, values.row_stride, true};
    return true;
  }
  if (values.row_stride == 1 && values.col_stride >= block.rows && values.col_stride <= kMaxLd) {
    panel = {data, values.col_stride, false};
    return true;
  }
  return false;
}

// One row, unit stride along k: one scale per 128 elements at most.
void LoadRow(const BoundMatrix& values, const BoundScales& scales, int64_t row, const Block& block,
             float* out) {
  if (scales.data == nullptr) {
    return ToF32(values.dtype, values.At(row, block.k0), block.ks, out);
  }
  for (int64_t done = 0; done < block.ks;) {
    const int64_t k = block.k0 + done;
    const int64_t run = scales.RunAlongK(k, block.ks - done);
    ToF32Scaled(values.dtype, values.At(row, k), run, *scales.At(row, k), out + done);
    done += run;
  }
}

void LoadStridedRow(const BoundMatrix& values, const BoundScales& scales, int64_t row,
                    const Block& block, float* out) {
  alignas(64) std::byte dense[kChunk * 4];
  for (int64_t done = 0; done < block.ks;) {
    const int64_t k = block.k0 + done;
    const int64_t run = std::min(kChunk, scales.RunAlongK(k, block.ks - done));
    Gather(SizeBytes(values.dtype), values.At(row, k), values.col_stride, run, dense);
    ToF32Scaled(values.dtype, dense, run, scales.Factor(row, k), out + done);
    done += run;
  }
}

// The block's k's [begin, end), unit stride along rows. Scales vary along the run, so they are laid
// out as a vector of factors first, once per scale block.
void LoadColumns(const BoundMatrix& values, const BoundScales& scales, const Block& block,
                 int64_t begin, int64_t end, float* out, int64_t ld) {
  std::vector<float> factors(scales.data == nullptr ? 0 : block.rows);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t k = block.k0 + i;
    const std::byte* src = values.At(block.row0, k);
    float* line = out + i * ld;
    if (scales.data == nullptr) {
      ToF32(values.dtype, src, block.rows, line);
      continue;
    }
    if (i == begin || k % scales.k_per_scale == 0) {
      for (int64_t r = 0; r < block.rows; ++r) factors[r] = *scales.At(block.row0 + r, k);
    }
    ToF32Times(values.dtype, src, block.rows, factors.data(), line);
  }
}

}  // namespace

Panel LoadPanel(const BoundMatrix& values, const BoundScales& scales, const Block& block,
                float* storage, const RunContext& context) {
  Panel panel;
  if (IsReady(values, scales, block, panel)) return panel;
  if (values.col_stride != 1 && values.row_stride == 1 && block.ks > 1) {
    const int64_t ld = block.rows + kPadding;
    context.For(block.ks, GrainOf(block.rows), [&](int64_t begin, int64_t end) {
      LoadColumns(values, scales, block, begin, end, storage, ld);
    });
    return {storage, ld, false};
  }
  const int64_t ld = block.ks + kPadding;
  const bool strided = values.col_stride != 1;
  context.For(block.rows, GrainOf(block.ks), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* out = storage + r * ld;
      if (strided) {
        LoadStridedRow(values, scales, block.row0 + r, block, out);
      } else {
        LoadRow(values, scales, block.row0 + r, block, out);
      }
    }
  });
  return {storage, ld, true};
}

void MultiplyPanels(const Panel& a, const Panel& b, int64_t m, int64_t n, int64_t k, float beta,
                    float* c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, a.k_contiguous ? CblasNoTrans : CblasTrans,
              b.k_contiguous ? CblasTrans : CblasNoTrans, static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k), 1.0f, a.data, static_cast<int>(a.ld), b.data,
              static_cast<int>(b.ld), beta, c, static_cast<int>(ldc));
}

}  // namespace gemmd::kernels::cpu
