#include <algorithm>
#include <vector>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/ops/convert.h"
#include "kernels/cpu/ops/run_op.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kChunk = 512;  // columns at a time, on the stack
constexpr int64_t kGrainElements = 1 << 15;

int32_t* Numbers(const TensorRef& tensor, const RunContext& context) {
  return reinterpret_cast<int32_t*>(Address(tensor, context.bindings));
}

// dst[token] of columns [begin, begin + n), from the rows whose places were read and checked.
void CombineColumns(const BoundMatrix& src, const BoundMatrix& dst, int64_t token,
                    const std::vector<int32_t>& places, const std::vector<float>& weights,
                    int64_t begin, int64_t n) {
  alignas(64) std::byte dense[kChunk * 4];
  alignas(64) float row[kChunk];
  alignas(64) float sum[kChunk] = {};
  for (size_t j = 0; j < places.size(); ++j) {
    if (places[j] < 0) continue;
    const std::byte* from = src.At(places[j], begin);
    if (src.col_stride != 1) {
      Gather(SizeBytes(src.dtype), from, src.col_stride, n, dense);
      from = dense;
    }
    ToF32(src.dtype, from, n, row);
    for (int64_t i = 0; i < n; ++i) sum[i] += weights[j] * row[i];
  }
  std::byte* const target = dst.At(token, begin);
  FromF32(dst.dtype, sum, n, dst.col_stride == 1 ? target : dense);
  if (dst.col_stride != 1) Scatter(SizeBytes(dst.dtype), dense, n, target, dst.col_stride);
}

}  // namespace

void RunOp(const RouteOp& op, const RunContext& context) {
  const int64_t tokens = op.ids.shape[0];
  const int64_t top_k = op.ids.shape[1];
  const auto experts = static_cast<int32_t>(op.offsets.shape[0] - 1);
  const int32_t* ids = Numbers(op.ids, context);
  int32_t* const offsets = Numbers(op.offsets, context);
  int32_t* const rows = Numbers(op.rows, context);
  int32_t* const positions = Numbers(op.positions, context);
  // A copy: another program may write there meanwhile, and both passes must see the same ids.
  std::vector<int32_t> chosen;
  chosen.reserve(static_cast<size_t>(tokens * top_k));
  std::vector<int32_t> next(static_cast<size_t>(experts) + 1, 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < top_k; ++j) {
      int32_t id = ids[t * op.ids.strides[0] + j];
      if (id < -1 || id >= experts) {
        if (context.faults != nullptr) {
          context.faults->Report(
              {DataFaultKind::kExpert, static_cast<int32_t>(t * top_k + j), id, experts - 1});
        }
        id = -1;
      }
      chosen.push_back(id);
      if (id >= 0) ++next[static_cast<size_t>(id) + 1];
    }
  }
  for (int32_t e = 0; e < experts; ++e) next[e + 1] += next[e];
  std::copy(next.begin(), next.end(), offsets);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t j = 0; j < top_k; ++j) {
      const int32_t id = chosen[t * top_k + j];
      const int32_t place = id < 0 ? -1 : next[id]++;
      positions[t * op.positions.strides[0] + j] = place;
      if (place >= 0) rows[place] = static_cast<int32_t>(t);
    }
  }
  std::fill(rows + next[experts], rows + tokens * top_k, -1);
}

void RunOp(const CombineOp& op, const RunContext& context) {
  const BoundMatrix src = BindMatrix(op.src, context.bindings, 0);
  const BoundMatrix dst = BindMatrix(op.dst, context.bindings, 0);
  const BoundMatrix weights = BindMatrix(op.weights, context.bindings, 0);
  const int32_t* const positions = Numbers(op.positions, context);
  const int64_t top_k = op.positions.shape[1];
  const int64_t each = std::max<int64_t>(1, dst.cols * (top_k + 1));
  context.For(
      dst.rows, std::max<int64_t>(1, kGrainElements / each), [&](int64_t begin, int64_t end) {
        std::vector<int32_t> places(static_cast<size_t>(top_k));
        std::vector<float> factors(static_cast<size_t>(top_k));
        for (int64_t token = begin; token < end; ++token) {
          for (int64_t j = 0; j < top_k; ++j) {
            int32_t place = positions[token * op.positions.strides[0] + j];
            if (place < -1 || place >= src.rows) {
              if (context.faults != nullptr) {
                context.faults->Report({DataFaultKind::kPosition,
                                        static_cast<int32_t>(token * top_k + j), place,
                                        static_cast<int32_t>(src.rows - 1)});
              }
              place = -1;
            }
            places[j] = place;
            factors[j] = *reinterpret_cast<const float*>(weights.At(token, j));
          }
          for (int64_t col = 0; col < dst.cols; col += kChunk) {
            CombineColumns(src, dst, token, places, factors, col, std::min(kChunk, dst.cols - col));
          }
        }
      });
}

}  // namespace gemmd::kernels::cpu
