#include "kernels/bench/cuda/grouped/grouped_workload.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/bench/cuda/extents.h"
#include "kernels/bench/cuda/operands.h"
#include "kernels/bench/cuda/reference.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::ToStatus;

float FromBf16(uint16_t code) { return std::bit_cast<float>(static_cast<uint32_t>(code) << 16); }

// Of a result that is compared, no more than so many elements, the last rows of each group.
constexpr int64_t kMostCompared = int64_t{1} << 26;

}  // namespace

std::vector<int32_t> GroupedWorkload::Index() const {
  std::vector<int32_t> index;
  if (case_.layout == GroupLayout::kCounts) {
    for (const int64_t rows : case_.rows) index.push_back(static_cast<int32_t>(rows));
    return index;
  }
  const std::vector<int64_t> starts = case_.starts();
  if (case_.layout == GroupLayout::kOffsets) {
    index.assign(starts.begin(), starts.end());
    return index;
  }
  int64_t end = 0;  // of the group in front that has rows
  if (case_.layout == GroupLayout::kRowIds) index.assign(static_cast<size_t>(starts.back()), -1);
  for (size_t g = 0; g < case_.rows.size(); ++g) {
    if (case_.rows[g] > 0) end = starts[g] + case_.rows[g];
    if (case_.layout == GroupLayout::kEnds) {
      index.push_back(static_cast<int32_t>(end));
    } else {
      std::fill_n(index.begin() + starts[g], case_.rows[g], static_cast<int32_t>(g));
    }
  }
  return index;
}

absl::Status GroupedWorkload::Prepare(const GroupedBenchCase& c, uint64_t seed,
                                      cudaStream_t stream) {
  case_ = c;
  kept_ = false;
  const auto groups = static_cast<int64_t>(c.rows.size());
  const int64_t k_blocks = BlocksOf(c.k);
  const int64_t ld = RoundUp4(rows_of_item());
  const std::vector<int32_t> index = Index();
  for (absl::Status status :
       {a_.Reserve(all_rows() * c.k * element_bytes() + 256),
        a_scales_.Reserve(items() * ld * k_blocks * 4 + 256),
        b_.Reserve(groups * c.n * c.k * element_bytes() + 256),
        b_scales_.Reserve(groups * std::max(BlocksOf(c.n) * k_blocks, c.n) * 4 + 256),
        index_.Reserve(static_cast<int64_t>(index.size()) * 4), d_.Reserve(all_rows() * c.n * 2),
        other_d_.Reserve(all_rows() * c.n * 2), sink_.Reserve(256), fault_.Reserve(256),
        differing_.Reserve(256)}) {
    if (!status.ok()) return status;
  }
  const absl::Status made = blocks()               ? Quantize(seed, stream)
                            : element_bytes() == 1 ? QuantizeRows(seed, stream)
                                                   : MakeValues(seed, stream);
  if (!made.ok()) return made;
  for (cudaError_t code :
       {cudaMemcpyAsync(index_.data(), index.data(), index.size() * 4, cudaMemcpyHostToDevice,
                        stream),
        cudaMemsetAsync(d_.data(), 0xff, all_rows() * c.n * 2, stream),
        cudaMemsetAsync(other_d_.data(), 0xff, all_rows() * c.n * 2, stream),
        cudaMemsetAsync(fault_.data(), 0, 256, stream), cudaStreamSynchronize(stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "making operands");
  }
  return absl::OkStatus();
}

absl::Status GroupedWorkload::Quantize(uint64_t seed, cudaStream_t stream) {
  const GroupedBenchCase& c = case_;
  const int64_t k_blocks = BlocksOf(c.k), ld = RoundUp4(rows_of_item());
  const BlockCode codes = c.dtype == DType::kI8 ? BlockCode::kI8 : BlockCode::kE4M3;
  for (int64_t item = 0; item < items(); ++item) {
    const cudaError_t code = QuantizeRandom1x128(
        seed + item, rows_of_item(), c.k, a_.data() + item * rows_of_item() * c.k,
        a_scales_.as<float>() + item * ld * k_blocks, ld, stream, codes);
    if (code != cudaSuccess) return ToStatus(code, "making a");
  }
  return ToStatus(QuantizeRandom128x128(seed + 7919, static_cast<int64_t>(c.rows.size()) * c.n, c.k,
                                        b_.data(), b_scales_.as<float>(), k_blocks, stream, codes),
                  "making b");
}

absl::Status GroupedWorkload::QuantizeRows(uint64_t seed, cudaStream_t stream) {
  const BlockCode codes = case_.dtype == DType::kI8 ? BlockCode::kI8 : BlockCode::kE4M3;
  for (cudaError_t code :
       {QuantizeRandomRows(seed, all_rows(), case_.k, a_.data(), a_scales_.as<float>(), stream,
                           codes),
        QuantizeRandomRows(seed + 7919, static_cast<int64_t>(case_.rows.size()) * case_.n, case_.k,
                           b_.data(), b_scales_.as<float>(), stream, codes)}) {
    if (code != cudaSuccess) return ToStatus(code, "making operands");
  }
  return absl::OkStatus();
}

absl::Status GroupedWorkload::MakeValues(uint64_t seed, cudaStream_t stream) {
  const auto make = case_.dtype == DType::kBF16 ? RandomBf16 : RandomF16;
  for (cudaError_t code : {make(seed, all_rows(), case_.k, a_.as<uint16_t>(), stream),
                           make(seed + 7919, static_cast<int64_t>(case_.rows.size()) * case_.n,
                                case_.k, b_.as<uint16_t>(), stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "making operands");
  }
  return absl::OkStatus();
}

GroupedMatmulOp GroupedWorkload::OpOf(bool tma) const {
  const auto groups = static_cast<int64_t>(case_.rows.size());
  const int64_t rows = rows_of_item(), k_blocks = BlocksOf(case_.k), ld = RoundUp4(rows);
  const bool batched = case_.layout == GroupLayout::kCounts;
  const auto dims = [&](int64_t columns) {
    return batched ? MakeDims({groups, rows, columns}) : MakeDims({rows, columns});
  };
  GroupedMatmulOp op;
  op.layout = case_.layout;
  op.alignment = case_.layout == GroupLayout::kEnds ? case_.alignment : 1;
  op.expected_rows = case_.expects ? case_.total_rows() : 0;
  op.a.values = Dense(0, case_.dtype, dims(case_.k));
  op.b.values = Dense(2, case_.dtype, MakeDims({groups, case_.n, case_.k}));
  op.groups = Dense(4, DType::kI32, MakeDims({static_cast<int64_t>(Index().size())}));
  op.d = Dense(tma ? 5 : 6, out(), dims(case_.n));
  if (element_bytes() != 1) return op;
  if (!blocks()) {
    op.a.granularity = op.b.granularity = ScaleGranularity::kPerRow;
    op.a.scales = Dense(1, DType::kF32, batched ? MakeDims({groups, rows}) : MakeDims({rows}));
    op.b.scales = Dense(3, DType::kF32, MakeDims({groups, case_.n}));
    return op;
  }
  op.a.granularity = ScaleGranularity::kBlock1x128;
  op.a.scales = Dense(1, DType::kF32, dims(k_blocks));
  op.a.scales->strides = batched ? MakeDims({ld * k_blocks, 1, ld}) : MakeDims({1, ld});
  op.b.granularity = ScaleGranularity::kBlock128x128;
  op.b.scales = Dense(3, DType::kF32, MakeDims({groups, BlocksOf(case_.n), k_blocks}));
  return op;
}

absl::StatusOr<Call> GroupedWorkload::Bind(bool tma, const cuda::DeviceTraits& device, int config,
                                           int grain) {
  const GroupedMatmulOp op = OpOf(tma);
  if (const std::string why = cuda::WhyNotTma(op); tma && !why.empty()) {
    return absl::UnimplementedError(why);
  }
  cuda::GroupedLayout layout = cuda::LayoutOf(op, tma);
  if (config >= 0 && blocks()) {
    // INT8 has no rests, which come last.
    const int kernels = cuda::kRowsKernels - (case_.dtype == DType::kI8 ? 1 : 0);
    if (config >= kernels) {
      return absl::InvalidArgumentError(
          absl::StrCat("there are ", kernels, " kernels; none is ", config));
    }
    layout.rows = static_cast<cuda::RowsKernel>(config);
  } else if (config >= 0) {
    if (config >= cuda::kSm90Bf16Grouped.num_configs) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there are ", cuda::kSm90Bf16Grouped.num_configs, " configs; none is ", config));
    }
    layout.direct_config = config;
  }
  DeviceBuffer& scratch = tma ? scratch_ : other_scratch_;
  if (absl::Status s = scratch.Reserve(cuda::kScratchHead + layout.scratch_bytes); !s.ok()) {
    return s;
  }
  const cudaError_t code = cudaMemset(scratch.data(), 0, cuda::kScratchHead);
  if (code != cudaSuccess) return ToStatus(code, "clearing scratch memory");
  std::vector<std::byte*> slots;
  for (const DeviceBuffer* buffer : {&a_, &a_scales_, &b_, &b_scales_, &index_, &d_, &other_d_}) {
    slots.push_back(reinterpret_cast<std::byte*>(buffer->data()));
  }
  auto prepared = cuda::PrepareGrouped(
      op, layout, slots, reinterpret_cast<std::byte*>(scratch.data()) + cuda::kScratchHead, device);
  if (!prepared.ok()) return prepared.status();
  if (prepared->block_scaled) prepared->block_scaled->grain = grain;
  const auto launches = std::make_shared<cuda::GroupedLaunches>(*std::move(prepared));
  return Call([launches, fault = fault_.as<DataFault>()](cudaStream_t stream) {
    return cuda::QueueGrouped(*launches, fault, false, stream);
  });
}

absl::StatusOr<double> GroupedWorkload::Difference(cudaStream_t stream) {
  if (absl::Status s = WaitIdle(stream); !s.ok()) return s;
  const int64_t n = case_.n;
  const int64_t most = std::max<int64_t>(
      1, kMostCompared / (n * static_cast<int64_t>(case_.rows.size())));  // rows of a group
  const auto value = [half = out() == DType::kF16](uint16_t code) {
    return half ? static_cast<float>(std::bit_cast<_Float16>(code)) : FromBf16(code);
  };
  double error = 0, norm = 0;
  std::vector<uint16_t> mine, other;
  const std::vector<int64_t> starts = case_.starts();
  for (size_t g = 0; g < case_.rows.size(); ++g) {
    const bool batched = case_.layout == GroupLayout::kCounts;
    const int64_t skipped = std::max<int64_t>(0, case_.rows[g] - most);
    const int64_t first = (batched ? static_cast<int64_t>(g) * case_.m_max : starts[g]) + skipped;
    // The rows, and two behind them that are nobody's.
    const int64_t rows = case_.rows[g] - skipped,
                  end = batched ? case_.m_max : starts[g + 1] - starts[g],
                  behind = std::min(end - case_.rows[g], int64_t{2});
    mine.resize(static_cast<size_t>((rows + behind) * n));
    other.resize(mine.size());
    for (auto [to, from] : {std::pair(&mine, &d_), {&other, &other_d_}}) {
      const cudaError_t code = cudaMemcpy(to->data(), from->as<uint16_t>() + first * n,
                                          to->size() * 2, cudaMemcpyDeviceToHost);
      if (code != cudaSuccess) return ToStatus(code, "reading results");
    }
    for (size_t i = 0; i < mine.size(); ++i) {
      if (static_cast<int64_t>(i) >= rows * n) {
        if (mine[i] != 0xffff) return std::numeric_limits<double>::infinity();
        continue;
      }
      const double x = value(mine[i]), y = value(other[i]);
      error += (x - y) * (x - y);
      norm += y * y;
    }
  }
  return norm == 0 ? error : std::sqrt(error / norm);
}

absl::StatusOr<bool> GroupedWorkload::SameBits(cudaStream_t stream) {
  const int64_t words = all_rows() * case_.n;
  unsigned long long count = 0;
  if (!kept_) {
    kept_ = true;
    const cudaError_t code =
        cudaMemcpyAsync(other_d_.data(), d_.data(), words * 2, cudaMemcpyDeviceToDevice, stream);
    if (code != cudaSuccess) return ToStatus(code, "keeping the result");
    return true;
  }
  for (cudaError_t code : {cudaMemsetAsync(differing_.data(), 0, sizeof(count), stream),
                           CountDiffering(d_.as<uint16_t>(), other_d_.as<uint16_t>(), words,
                                          differing_.as<unsigned long long>(), stream),
                           cudaMemcpyAsync(&count, differing_.data(), sizeof(count),
                                           cudaMemcpyDeviceToHost, stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "comparing results");
  }
  if (absl::Status s = WaitIdle(stream); !s.ok()) return s;
  return count == 0;
}

FloorTraffic GroupedWorkload::traffic() const {
  FloorTraffic traffic;
  const int64_t rows = case_.total_rows();
  traffic.source[0] = b_.data();
  traffic.source_bytes[0] = case_.active_groups() * case_.n * case_.k * element_bytes();
  traffic.source[1] = a_.data();
  traffic.source_bytes[1] = rows * case_.k * element_bytes();
  traffic.target = other_d_.data();
  traffic.target_bytes = rows * case_.n * 2;
  traffic.sink = sink_.as<unsigned>();
  if (!blocks()) return traffic;
  traffic.source[2] = a_scales_.data();
  traffic.source_bytes[2] = rows * BlocksOf(case_.k) * 4;
  traffic.source[3] = b_scales_.data();
  traffic.source_bytes[3] = case_.active_groups() * BlocksOf(case_.n) * BlocksOf(case_.k) * 4;
  return traffic;
}

}  // namespace gemmd::kernels::bench
