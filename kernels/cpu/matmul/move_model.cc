#include "kernels/cpu/matmul/move_model.h"

#include <algorithm>
#include <numeric>
#include <variant>

#include "kernels/cpu/matmul/grouped.h"
#include "kernels/cpu/matmul/k_grouped.h"
#include "kernels/cpu/runs.h"

namespace gemmd::kernels::cpu {
namespace {

// Nanoseconds of one thread, fitted to the cases of move_model_test on a server core (AMD EPYC, L1
// 32 KiB, L2 512 KiB, 2.x GHz). Other cores' caches are of the same order.
constexpr double kByteNs = 0.075;     // read or written in a row
constexpr double kGapByteNs = 0.055;  // of a line that is passed over within it
constexpr double kL1Ns = 0.5;  // of an element apart from its neighbours, by where its line is
constexpr double kL2Ns = 1.3;
constexpr double kL3Ns = 3.3;
constexpr double kTlbNs = 3.3;         // and by whether its page is remembered
constexpr double kGatherNs = 0.25;     // to bring together what shares a line
constexpr double kPageNs = 8;          // on a page that nothing has touched lately
constexpr double kStridedStore = 1.6;  // a line is read before a part of it is written
constexpr double kCopyRowNs = 9;       // a row: its place, a call
constexpr double kConvertRowNs = 18;
constexpr double kQuantizeBlockNs = 25;
constexpr double kToE4M3 = 4.4;  // of a conversion's time, by the type it is to
constexpr double kToOthers = 0.5;
constexpr double kOverheadSeconds = 0.15e-6;

constexpr double kLine = 64;  // bytes
constexpr double kPage = 4096;
constexpr int64_t kL1Sets = 64, kL2Sets = 1024, kWays = 8;
constexpr double kRememberedPages = 1536;

// One view along the loop that walks it. Strides in bytes, of its inner and its next dimension.
struct Walk {
  int size = 1;  // of an element, bytes
  double count = 1;
  double inner_stride = 1;
  double next_stride = 0;  // 0: there is none, or it repeats
};

// How many lines that lie `stride` bytes apart a cache keeps: a power of two puts all into few
// sets.
double LinesKept(int64_t sets, double stride) {
  const auto lines = static_cast<int64_t>(stride) / 64;
  if (lines == 0 || static_cast<int64_t>(stride) % 64 != 0)
    return static_cast<double>(sets * kWays);
  return static_cast<double>(sets / std::gcd(lines, sets) * kWays);
}

// From `least` when all of `lines` are kept to `most` when three times as many are walked.
double Between(double least, double most, double lines, double kept) {
  return least + (most - least) * std::clamp((lines / kept - 1) / 2, 0.0, 1.0);
}

// An element whose line was touched by the row before, with `walk.count` others between.
double KeptLineNs(const Walk& walk) {
  const double lines = walk.count;
  const double l1 = LinesKept(kL1Sets, walk.inner_stride);
  const double l2 = LinesKept(kL2Sets, walk.inner_stride);
  const double line =
      lines <= l2 ? Between(kL1Ns, kL2Ns, lines, l1) : Between(kL2Ns, kL3Ns, lines, l2);
  const double pages = lines * std::min(1.0, walk.inner_stride / kPage);
  return line + (pages > kRememberedPages ? kTlbNs : 0);
}

double FreshLineNs(double stride) {
  return kLine * kGapByteNs + kPageNs * std::min(1.0, stride / kPage);
}

// An element of the view.
double AccessNs(const Walk& walk) {
  if (walk.inner_stride == 0) return 0;
  if (walk.inner_stride <= walk.size) {
    // Rows apart from each other bring what is between them, up to the end of a line.
    const double gap = walk.next_stride - walk.count * walk.size;
    return walk.size * kByteNs + std::clamp(gap, 0.0, kLine) * kGapByteNs / walk.count;
  }
  if (walk.inner_stride <= kLine) return walk.inner_stride * kGapByteNs;
  // Lines that the next rows touch again, if they are still there then.
  const bool again = walk.next_stride > 0 && walk.next_stride < kLine;
  if (!again) return FreshLineNs(walk.inner_stride);
  return KeptLineNs(walk) + FreshLineNs(walk.inner_stride) * walk.next_stride / kLine;
}

double ConversionNs(const Machine& machine, DType to) {
  const double each = 1e9 * machine.threads / machine.convert_per_s;
  return each * (IsFp8(to) ? kToE4M3 : kToOthers);
}

double Spread(const Machine& machine, double ns, double elements, double grain) {
  const double threads = elements > grain ? machine.threads : 1;
  return kOverheadSeconds + ns * 1e-9 / threads;
}

// Copies and conversions, as ForEachRun walks them.
double RunsSeconds(const Machine& machine, const TensorRef* src, const TensorRef& dst) {
  constexpr double kGrain = 1 << 17;
  const Runs runs = PlanRuns(dst.shape, src != nullptr ? src->strides : dst.strides, dst.strides);
  const double elements = 1.0 * runs.extents[0] * runs.extents[1] * runs.extents[2];
  if (elements == 0) return kOverheadSeconds;
  const bool converts = src != nullptr && src->dtype != dst.dtype;
  const double rows = elements / static_cast<double>(runs.extents[2]);
  const int next = runs.extents[1] > 1 ? 1 : 0;
  const bool one_row = rows == 1;
  double ns = rows * (converts ? kConvertRowNs : kCopyRowNs);
  const auto walk = [&](int size, const std::array<int64_t, kMaxRank>& strides) {
    return Walk{.size = size,
                .count = static_cast<double>(runs.extents[2]),
                .inner_stride = static_cast<double>(strides[2]) * size,
                .next_stride = one_row ? 0 : static_cast<double>(strides[next]) * size};
  };
  if (src != nullptr) {
    const Walk from = walk(SizeBytes(src->dtype), runs.src_strides);
    const bool gathers = from.inner_stride > from.size && from.inner_stride <= kLine;
    ns += elements * (AccessNs(from) + (gathers ? kGatherNs : 0));
  }
  const Walk to = walk(SizeBytes(dst.dtype), runs.dst_strides);
  ns += elements * AccessNs(to) * (to.inner_stride > to.size ? kStridedStore : 1);
  if (converts) ns += elements * ConversionNs(machine, dst.dtype);
  return Spread(machine, ns, elements, kGrain);
}

// Each block is read twice: for its maximum, and for its values.
double SecondsOf(const Machine& machine, const QuantizeOp& op) {
  constexpr double kGrain = 1 << 16;
  const int rank = op.src.shape.rank;
  const double batch = rank == 3 ? static_cast<double>(op.dst.shape[0]) : 1;
  const double rows = static_cast<double>(op.dst.shape[rank - 2]);
  const double ks = static_cast<double>(op.src.shape[rank - 1]);
  const double elements = batch * rows * ks;
  if (elements == 0) return kOverheadSeconds;
  const bool bands = op.granularity == ScaleGranularity::kBlock128x128;
  const bool blocks = bands || op.granularity == ScaleGranularity::kBlock1x128;
  const double block = blocks ? std::min<double>(ks, kScaleBlock) : ks;
  const int size = SizeBytes(op.src.dtype);
  Walk first{.size = size,
             .count = bands ? block : ks,
             .inner_stride = static_cast<double>(op.src.strides[rank - 1]) * size,
             .next_stride = rows > 1 ? static_cast<double>(op.src.strides[rank - 2]) * size : 0};
  Walk again = first;
  again.count = block;
  if (blocks && first.inner_stride > kLine) again.next_stride = 1e-3;  // the lines are the same
  const int dst_size = SizeBytes(op.dst.dtype);
  const Walk to{.size = dst_size,
                .count = ks,
                .inner_stride = static_cast<double>(op.dst.strides[rank - 1]) * dst_size,
                .next_stride = rows > 1 ? static_cast<double>(op.dst.strides[rank - 2]) : 0};
  const double each = AccessNs(first) + AccessNs(again) +
                      AccessNs(to) * (to.inner_stride > to.size ? kStridedStore : 1) +
                      ConversionNs(machine, op.dst.dtype) + 2 * ConversionNs(machine, DType::kF32);
  const double ns = elements * each + elements / block * kQuantizeBlockNs;
  return Spread(machine, ns, elements / batch, kGrain);
}

// Along the rows of a matrix, or of a batch of them.
Walk WalkOf(const TensorRef& tensor) {
  const int rank = tensor.shape.rank, size = SizeBytes(tensor.dtype);
  return {.size = size,
          .count = static_cast<double>(tensor.shape[rank - 1]),
          .inner_stride = static_cast<double>(tensor.strides[rank - 1]) * size,
          .next_stride = static_cast<double>(tensor.strides[rank - 2]) * size};
}

// Both of a pair are read, and an exponential takes about as long as two conversions; with scales
// each block is gone over twice.
double SecondsOf(const Machine& machine, const GatedOp& op) {
  const double elements = static_cast<double>(NumElements(op.dst.shape).value_or(0));
  if (elements == 0) return kOverheadSeconds;
  const double conversions = op.scales ? 6 : 5;
  const double each = (op.alone ? 1 : 2) * AccessNs(WalkOf(op.src)) + AccessNs(WalkOf(op.dst)) +
                      conversions * 1e9 * machine.threads / machine.convert_per_s;
  constexpr double kGrain = 1 << 15;
  return Spread(machine, elements * each, elements, kGrain);
}

// An exponential an expert, and a partial sort.
double SecondsOf(const Machine& machine, const ChooseOp& op) {
  constexpr double kExpertNs = 6;
  constexpr double kChoiceNs = 12;
  const double logits = static_cast<double>(NumElements(op.logits.shape).value_or(0));
  const double choices = static_cast<double>(NumElements(op.experts.shape).value_or(0));
  constexpr double kGrain = 1 << 12;
  return Spread(machine, logits * kExpertNs + choices * kChoiceNs, logits, kGrain);
}

// One thread's, three passes over the ids.
double SecondsOf(const Machine&, const RouteOp& op) {
  constexpr double kChoiceNs = 4;
  return kOverheadSeconds +
         kChoiceNs * 1e-9 * static_cast<double>(NumElements(op.ids.shape).value_or(0));
}

double SecondsOf(const Machine& machine, const CombineOp& op) {
  const double rows = static_cast<double>(NumElements(op.positions.shape).value_or(0));
  const double results = static_cast<double>(NumElements(op.dst.shape).value_or(0));
  const int size = SizeBytes(op.src.dtype);
  const double elements = rows * static_cast<double>(op.src.shape[1]);
  if (elements == 0) return kOverheadSeconds;
  const Walk from{.size = size,
                  .count = static_cast<double>(op.src.shape[1]),
                  .inner_stride = static_cast<double>(op.src.strides[1]) * size,
                  .next_stride = static_cast<double>(op.src.strides[0]) * size};
  const double each = AccessNs(from) + 2 * ConversionNs(machine, DType::kF32);
  constexpr double kGrain = 1 << 15;
  return Spread(machine, elements * each + results * ConversionNs(machine, op.dst.dtype), elements,
                kGrain);
}

// A row is read three times, or twice where it is not centred.
double SecondsOf(const Machine& machine, const NormalizeOp& op) {
  const double elements = static_cast<double>(NumElements(op.dst.shape).value_or(0));
  if (elements == 0) return kOverheadSeconds;
  const double reads = op.centered ? 3 : 2;
  const double sums =
      op.addend ? AccessNs(WalkOf(*op.addend)) + 2 * ConversionNs(machine, op.src.dtype) : 0;
  const double each =
      reads * (AccessNs(WalkOf(op.src)) + ConversionNs(machine, DType::kF32) + sums) +
      AccessNs(WalkOf(op.dst)) + ConversionNs(machine, op.dst.dtype);
  constexpr double kGrain = 1 << 15;
  return Spread(machine, elements * each, elements, kGrain);
}

TensorRef Dense(const TensorRef& tensor) {
  TensorRef dense = tensor;
  dense.strides = RowMajorStrides(tensor.shape);
  return dense;
}

double SecondsOf(const Machine&, const MatmulOp&) { return 0; }  // its kernels have models

double SecondsOf(const Machine& machine, const GroupedMatmulOp& op) {
  return GroupedSeconds(op, machine);
}

double SecondsOf(const Machine& machine, const KGroupedMatmulOp& op) {
  return KGroupedSeconds(op, machine);
}

double SecondsOf(const Machine& machine, const FillOp& op) {
  return RunsSeconds(machine, nullptr, op.dst);
}

double SecondsOf(const Machine& machine, const WriteOp& op) {
  const TensorRef data = Dense(op.dst);
  return RunsSeconds(machine, &data, op.dst);
}

double SecondsOf(const Machine& machine, const ReadOp& op) {
  return RunsSeconds(machine, &op.src, Dense(op.src));
}

double SecondsOf(const Machine& machine, const ConvertOp& op) {
  return RunsSeconds(machine, &op.src, op.dst);
}

double SecondsOf(const Machine& machine, const CopyOp& op) {
  return RunsSeconds(machine, &op.src, op.dst);
}

}  // namespace

double OpMoveSeconds(const Machine& machine, const Op& op) {
  return std::visit([&](const auto& kind) { return SecondsOf(machine, kind); }, op);
}

}  // namespace gemmd::kernels::cpu
