#include "kernels/bench/cuda/grouped/layer_workload.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "kernels/bench/cuda/extents.h"
#include "kernels/bench/cuda/operands.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::ToStatus;

enum Slot {
  kX,
  kIds,
  kWeights,
  kOffsets,
  kRows,
  kPositions,
  kA,
  kAScales,
  kGateUp,
  kGateUpScales,
  kH,
  kHScales,
  kDown,
  kDownScales,
  kExpanded,  // and behind it d
};

Operand Rows(int slot, int64_t rows, int64_t k) {
  Operand operand;
  operand.values = Dense(slot, DType::kE4M3, MakeDims({rows, k}));
  operand.granularity = ScaleGranularity::kBlock1x128;
  operand.scales = Dense(slot + 1, DType::kF32, MakeDims({rows, BlocksOf(k)}));
  operand.scales->strides = MakeDims({1, RoundUp4(rows)});
  return operand;
}

Operand ExpertWeights(int slot, int64_t experts, int64_t n, int64_t k) {
  Operand operand;
  operand.values = Dense(slot, DType::kE4M3, MakeDims({experts, n, k}));
  operand.granularity = ScaleGranularity::kBlock128x128;
  operand.scales = Dense(slot + 1, DType::kF32, MakeDims({experts, BlocksOf(n), BlocksOf(k)}));
  return operand;
}

}  // namespace

double LayerCase::flops() const {
  return 6.0 * static_cast<double>(rows()) * static_cast<double>(hidden) *
         static_cast<double>(inner);
}

std::string LayerCase::name() const {
  return absl::StrCat(tokens, " tokens, top ", top_k, " of ", experts, ", ", hidden, "/", inner,
                      ", ", std::string(Name(routing)));
}

absl::Status LayerWorkload::Prepare(const LayerCase& c, uint64_t seed, cudaStream_t stream) {
  case_ = c;
  std::mt19937_64 random(seed);
  const std::vector<int32_t> ids = Route(c.routing, c.tokens, c.top_k, c.experts, random);
  std::vector<bool> hit(static_cast<size_t>(c.experts));
  for (const int32_t id : ids) hit[static_cast<size_t>(id)] = true;
  active_ = std::count(hit.begin(), hit.end(), true);
  const int64_t rows = c.rows();
  const int64_t bytes[kSlots] = {c.tokens * c.hidden * 2,
                                 rows * 4,
                                 rows * 4,
                                 (c.experts + 1) * 4,
                                 rows * 4,
                                 rows * 4,
                                 rows * c.hidden,
                                 RoundUp4(rows) * BlocksOf(c.hidden) * 4,
                                 c.experts * 2 * c.inner * c.hidden,
                                 c.experts * BlocksOf(2 * c.inner) * BlocksOf(c.hidden) * 4,
                                 rows * c.inner,
                                 RoundUp4(rows) * BlocksOf(c.inner) * 4,
                                 c.experts * c.hidden * c.inner,
                                 c.experts * BlocksOf(c.hidden) * BlocksOf(c.inner) * 4,
                                 (rows + c.tokens) * c.hidden * 2};
  for (int i = 0; i < kSlots; ++i) {
    if (absl::Status s = slots_[i].Reserve(bytes[i] + 256); !s.ok()) return s;
  }
  if (absl::Status s = sink_.Reserve(256); !s.ok()) return s;
  return MakeOperands(seed, ids, stream);
}

absl::Status LayerWorkload::MakeOperands(uint64_t seed, const std::vector<int32_t>& ids,
                                         cudaStream_t stream) {
  const LayerCase& c = case_;
  const std::vector<float> weights(ids.size(), 1.0f / static_cast<float>(c.top_k));
  for (const cudaError_t code :
       {RandomBf16(seed, c.tokens, c.hidden, slots_[kX].as<uint16_t>(), stream),
        QuantizeRandom128x128(seed + 1, c.experts * 2 * c.inner, c.hidden, slots_[kGateUp].data(),
                              slots_[kGateUpScales].as<float>(), BlocksOf(c.hidden), stream),
        QuantizeRandom128x128(seed + 2, c.experts * c.hidden, c.inner, slots_[kDown].data(),
                              slots_[kDownScales].as<float>(), BlocksOf(c.inner), stream),
        cudaMemcpyAsync(slots_[kIds].data(), ids.data(), ids.size() * 4, cudaMemcpyHostToDevice,
                        stream),
        cudaMemcpyAsync(slots_[kWeights].data(), weights.data(), weights.size() * 4,
                        cudaMemcpyHostToDevice, stream),
        cudaMemsetAsync(slots_[kExpanded].data(), 0xff, (c.rows() + c.tokens) * c.hidden * 2,
                        stream),
        cudaStreamSynchronize(stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "making a layer's operands");
  }
  return absl::OkStatus();
}

std::vector<Op> LayerWorkload::Ops() const {
  const LayerCase& c = case_;
  const int64_t rows = c.rows();
  const Dims choices = MakeDims({c.tokens, c.top_k});
  RouteOp route{.ids = Dense(kIds, DType::kI32, choices),
                .offsets = Dense(kOffsets, DType::kI32, MakeDims({c.experts + 1})),
                .rows = Dense(kRows, DType::kI32, MakeDims({rows})),
                .positions = Dense(kPositions, DType::kI32, choices)};
  const Operand a = Rows(kA, rows, c.hidden), h = Rows(kH, rows, c.inner);
  QuantizeOp quantize;
  quantize.src = Dense(kX, DType::kBF16, MakeDims({c.tokens, c.hidden}));
  quantize.dst = a.values;
  quantize.scales = *a.scales;
  quantize.rows = route.rows;
  GroupedMatmulOp first;
  first.a = a;
  first.b = ExpertWeights(kGateUp, c.experts, 2 * c.inner, c.hidden);
  first.groups = route.offsets;
  first.d = h.values;
  first.d_scales = h.scales;
  first.gate = Gate{};
  GroupedMatmulOp second;
  second.a = h;
  second.b = ExpertWeights(kDown, c.experts, c.hidden, c.inner);
  second.groups = route.offsets;
  second.d = Dense(kExpanded, DType::kBF16, MakeDims({rows, c.hidden}));
  CombineOp combine{.src = second.d,
                    .positions = route.positions,
                    .weights = Dense(kWeights, DType::kF32, choices),
                    .dst = Dense(kExpanded, DType::kBF16, MakeDims({c.tokens, c.hidden}))};
  combine.dst.offset_bytes = rows * c.hidden * 2;
  return {route, quantize, first, second, combine};
}

Bindings LayerWorkload::Memory() const {
  Bindings bindings;
  for (const DeviceBuffer& slot : slots_) {
    bindings.slots.push_back(reinterpret_cast<std::byte*>(slot.data()));
  }
  return bindings;
}

absl::StatusOr<std::vector<uint16_t>> LayerWorkload::Result() const {
  std::vector<uint16_t> result(static_cast<size_t>(case_.tokens * case_.hidden));
  const cudaError_t code =
      cudaMemcpy(result.data(), slots_[kExpanded].as<uint16_t>() + case_.rows() * case_.hidden,
                 result.size() * 2, cudaMemcpyDeviceToHost);
  if (code != cudaSuccess) return ToStatus(code, "reading a layer's result");
  return result;
}

FloorTraffic LayerWorkload::traffic() const {
  FloorTraffic traffic;
  traffic.source[0] = slots_[kGateUp].data();
  traffic.source_bytes[0] = active_ * 2 * case_.inner * case_.hidden;
  traffic.source[1] = slots_[kDown].data();
  traffic.source_bytes[1] = active_ * case_.inner * case_.hidden;
  traffic.sink = sink_.as<unsigned>();
  return traffic;
}

}  // namespace gemmd::kernels::bench
