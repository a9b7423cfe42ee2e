#include "kernels/bench/cuda/grouped/gate_workload.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/bench/cuda/extents.h"
#include "kernels/bench/cuda/grouped/row_scales.h"
#include "kernels/bench/cuda/operands.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::ToStatus;

}  // namespace

int64_t GateWorkload::h_scale_bytes() const { return RoundUp4(total_) * BlocksOf(n_ / 2) * 4; }

absl::Status GateWorkload::Prepare(const std::vector<int64_t>& rows, int64_t n, int64_t k,
                                   uint64_t seed, cudaStream_t stream) {
  rows_ = rows;
  n_ = n;
  k_ = k;
  total_ = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const auto groups = static_cast<int64_t>(rows.size());
  std::vector<int32_t> index = {0};
  for (const int64_t count : rows) index.push_back(index.back() + static_cast<int32_t>(count));
  const int64_t index_bytes = static_cast<int64_t>(index.size()) * 4;
  for (absl::Status status :
       {a_.Reserve(total_ * k + 256), a_scales_.Reserve(RoundUp4(total_) * BlocksOf(k) * 4 + 256),
        b_.Reserve(groups * n * k + 256),
        b_scales_.Reserve(groups * BlocksOf(n) * BlocksOf(k) * 4 + 256),
        index_.Reserve(index_bytes), d_.Reserve(total_ * n * 2), sink_.Reserve(256),
        fault_.Reserve(256), h_[0].Reserve(h_bytes()), h_[1].Reserve(h_bytes()),
        h_scales_[0].Reserve(h_scale_bytes()), h_scales_[1].Reserve(h_scale_bytes())}) {
    if (!status.ok()) return status;
  }
  std::vector<cudaError_t> codes = {
      QuantizeRandom1x128(seed, total_, k, a_.data(), a_scales_.as<float>(), RoundUp4(total_),
                          stream),
      QuantizeRandom128x128(seed + 7919, groups * n, k, b_.data(), b_scales_.as<float>(),
                            BlocksOf(k), stream),
      cudaMemcpyAsync(index_.data(), index.data(), index_bytes, cudaMemcpyHostToDevice, stream),
      cudaMemsetAsync(fault_.data(), 0, 256, stream)};
  for (int i = 0; i < 2; ++i) {
    codes.push_back(cudaMemsetAsync(h_[i].data(), 0xff, h_bytes(), stream));
    codes.push_back(cudaMemsetAsync(h_scales_[i].data(), 0xff, h_scale_bytes(), stream));
  }
  codes.push_back(cudaStreamSynchronize(stream));
  for (const cudaError_t code : codes) {
    if (code != cudaSuccess) return ToStatus(code, "making operands");
  }
  return absl::OkStatus();
}

GroupedMatmulOp GateWorkload::OpOf(GateWay way) const {
  const auto groups = static_cast<int64_t>(rows_.size());
  GroupedMatmulOp op;
  op.a.values = Dense(0, DType::kE4M3, MakeDims({total_, k_}));
  op.a.granularity = ScaleGranularity::kBlock1x128;
  op.a.scales = RowScales(1, total_, k_);
  op.b.values = Dense(2, DType::kE4M3, MakeDims({groups, n_, k_}));
  op.b.granularity = ScaleGranularity::kBlock128x128;
  op.b.scales = Dense(3, DType::kF32, MakeDims({groups, BlocksOf(n_), BlocksOf(k_)}));
  op.groups = Dense(4, DType::kI32, MakeDims({groups + 1}));
  op.d = Dense(5, DType::kBF16, MakeDims({total_, n_}));
  if (way == GateWay::kAlone) return op;
  op.gate = Gate{};
  op.d = Dense(5, DType::kE4M3, MakeDims({total_, n_ / 2}));
  op.d_scales = RowScales(6, total_, n_ / 2);
  return op;
}

absl::StatusOr<Call> GateWorkload::Bind(GateWay way, const cuda::DeviceTraits& device) {
  const GroupedMatmulOp op = OpOf(way);
  std::string why = cuda::WhyNotFp8(op);
  if (why.empty() && way == GateWay::kFused) why = cuda::WhyNotFused(op);
  if (!why.empty()) return absl::UnimplementedError(why);
  const cuda::GroupedLayout layout = cuda::LayoutOf(op, true, way == GateWay::kFused);
  DeviceBuffer& scratch = scratch_[static_cast<int>(way)];
  if (absl::Status s = scratch.Reserve(cuda::kScratchHead + layout.scratch_bytes); !s.ok())
    return s;
  const cudaError_t code = cudaMemset(scratch.data(), 0, cuda::kScratchHead);
  if (code != cudaSuccess) return ToStatus(code, "clearing scratch memory");
  const int result = way == GateWay::kApart ? 1 : 0;
  std::vector<std::byte*> slots;
  for (const DeviceBuffer* buffer :
       {&a_, &a_scales_, &b_, &b_scales_, &index_, way == GateWay::kAlone ? &d_ : &h_[result],
        &h_scales_[result]}) {
    slots.push_back(reinterpret_cast<std::byte*>(buffer->data()));
  }
  auto prepared = cuda::PrepareGrouped(
      op, layout, slots, reinterpret_cast<std::byte*>(scratch.data()) + cuda::kScratchHead, device);
  if (!prepared.ok()) return prepared.status();
  const auto launches = std::make_shared<cuda::GroupedLaunches>(*std::move(prepared));
  return Call([launches, fault = fault_.as<DataFault>()](cudaStream_t stream) {
    return cuda::QueueGrouped(*launches, fault, false, stream);
  });
}

absl::Status GateWorkload::Compare(cudaStream_t stream) const {
  if (absl::Status s = WaitIdle(stream); !s.ok()) return s;
  for (const auto& [name, buffers, bytes] :
       {std::tuple("values", h_, h_bytes()), {"scales", h_scales_, h_scale_bytes()}}) {
    std::vector<uint8_t> mine(static_cast<size_t>(bytes)), other(mine.size());
    for (auto [to, from] : {std::pair(&mine, &buffers[0]), {&other, &buffers[1]}}) {
      const cudaError_t code =
          cudaMemcpy(to->data(), from->data(), to->size(), cudaMemcpyDeviceToHost);
      if (code != cudaSuccess) return ToStatus(code, "reading results");
    }
    const auto [a, b] = std::mismatch(mine.begin(), mine.end(), other.begin());
    if (a == mine.end()) continue;
    return absl::InternalError(absl::StrCat(
        "wrong: ", name, " differ from the gate's behind the matmul at byte ", a - mine.begin()));
  }
  return absl::OkStatus();
}

FloorTraffic GateWorkload::traffic(GateWay way) const {
  const int64_t active = std::count_if(rows_.begin(), rows_.end(), [](int64_t c) { return c > 0; });
  FloorTraffic traffic;
  traffic.source[0] = b_.data();
  traffic.source_bytes[0] = active * n_ * k_;
  traffic.source[1] = a_.data();
  traffic.source_bytes[1] = total_ * k_;
  traffic.source[2] = a_scales_.data();
  traffic.source_bytes[2] = total_ * BlocksOf(k_) * 4;
  traffic.target = d_.data();
  traffic.target_bytes = way == GateWay::kAlone ? total_ * n_ * 2 : h_bytes() + h_scale_bytes();
  traffic.sink = sink_.as<unsigned>();
  return traffic;
}

double GateWorkload::flops() const {
  return 2.0 * static_cast<double>(total_) * static_cast<double>(n_) * static_cast<double>(k_);
}

}  // namespace gemmd::kernels::bench
