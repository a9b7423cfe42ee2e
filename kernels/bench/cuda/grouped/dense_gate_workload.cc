#include "kernels/bench/cuda/grouped/dense_gate_workload.h"

#include "kernels/bench/cuda/extents.h"
#include "kernels/bench/cuda/grouped/row_scales.h"
#include "kernels/bench/cuda/operands.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

enum DenseSlot {
  kDenseA,
  kDenseAScales,
  kDenseB,
  kDenseBScales,
  kDenseProduct,
  kDenseH,
  kDenseHScales
};

}  // namespace

absl::Status DenseGateWorkload::Prepare(int64_t m, int64_t n, int64_t k, uint64_t seed,
                                        cudaStream_t stream) {
  m_ = m;
  n_ = n;
  k_ = k;
  const int64_t bytes[kSlots] = {
      m * k,     RoundUp4(m) * BlocksOf(k) * 4,    n * k, BlocksOf(n) * BlocksOf(k) * 4, m * n * 2,
      m * n / 2, RoundUp4(m) * BlocksOf(n / 2) * 4};
  for (int i = 0; i < kSlots; ++i) {
    if (absl::Status s = slots_[i].Reserve(bytes[i] + 256); !s.ok()) return s;
  }
  if (absl::Status s = sink_.Reserve(256); !s.ok()) return s;
  for (const cudaError_t code :
       {QuantizeRandom1x128(seed, m, k, slots_[kDenseA].data(), slots_[kDenseAScales].as<float>(),
                            RoundUp4(m), stream),
        QuantizeRandom128x128(seed + 1, n, k, slots_[kDenseB].data(),
                              slots_[kDenseBScales].as<float>(), BlocksOf(k), stream),
        cudaStreamSynchronize(stream)}) {
    if (code != cudaSuccess) return cuda::ToStatus(code, "making a matmul's operands");
  }
  return absl::OkStatus();
}

std::vector<Op> DenseGateWorkload::Ops(bool gate) const {
  MatmulOp op;
  op.a.values = Dense(kDenseA, DType::kE4M3, MakeDims({m_, k_}));
  op.a.granularity = ScaleGranularity::kBlock1x128;
  op.a.scales = RowScales(kDenseAScales, m_, k_);
  op.b.values = Dense(kDenseB, DType::kE4M3, MakeDims({n_, k_}));
  op.b.granularity = ScaleGranularity::kBlock128x128;
  op.b.scales = Dense(kDenseBScales, DType::kF32, MakeDims({BlocksOf(n_), BlocksOf(k_)}));
  op.d = Dense(kDenseProduct, DType::kBF16, MakeDims({m_, n_}));
  if (gate) {
    op.gate = Gate{};
    op.d = Dense(kDenseH, DType::kE4M3, MakeDims({m_, n_ / 2}));
    op.d_scales = RowScales(kDenseHScales, m_, n_ / 2);
  }
  return {op};
}

Bindings DenseGateWorkload::Memory() const {
  Bindings bindings;
  for (const DeviceBuffer& slot : slots_) {
    bindings.slots.push_back(reinterpret_cast<std::byte*>(slot.data()));
  }
  return bindings;
}

FloorTraffic DenseGateWorkload::traffic() const {
  FloorTraffic traffic;
  traffic.source[0] = slots_[kDenseB].data();
  traffic.source_bytes[0] = n_ * k_;
  traffic.sink = sink_.as<unsigned>();
  return traffic;
}

}  // namespace gemmd::kernels::bench
