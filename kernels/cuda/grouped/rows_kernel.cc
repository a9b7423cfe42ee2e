// Which kernel for block scales takes a grouped matmul's rows, by what the host knows of them.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "kernels/cuda/grouped/grouped_extents.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/sm90/launch/group_cut.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kSms = 132;

// How often all SMs would be at work, were groups of as many rows each cut into wide tiles.
double RoundsOf(const GroupedExtents& extents) {
  constexpr int64_t kWideColumns = 256;
  const int64_t of_group = CeilDiv(CeilDiv(extents.rows, extents.groups), kWideRows);
  return static_cast<double>(extents.groups * of_group * CeilDiv(extents.n, kWideColumns)) / kSms;
}

// Clocks of the two kernels that few tiles go to, were groups' rows spread around their mean.
class FewTiles {
 public:
  FewTiles(const GroupedExtents& extents, bool fused)
      : fused_(fused), k_blocks_(static_cast<int>(CeilDiv(extents.k, kBlockK))) {
    constexpr double kSpread = 0.3;  // of a mean, either way
    constexpr int64_t kUnitColumns = 128, kWideColumns = 256;
    const int wide = static_cast<int>(CeilDiv(extents.n, kWideColumns));
    const int narrow = static_cast<int>(CeilDiv(extents.n, kUnitColumns));
    const auto groups = static_cast<double>(extents.groups);
    for (int64_t g = 0; g < extents.groups; ++g) {
      const double share = 1 + kSpread * ((2 * static_cast<double>(g) + 1) / groups - 1);
      const int rows =
          static_cast<int>(std::ceil(static_cast<double>(extents.rows) / groups * share));
      for (int grain = 0; grain < kGrains; ++grain) {
        const GroupCut cut = CutOf(rows, static_cast<Grain>(grain));
        (rows > kThinRows ? tiles_[grain] : thin_[grain]) +=
            (cut.wide + cut.half) * wide + cut.thin * (fused ? wide : narrow);
      }
      const ManyRowsCut cut(rows);
      units_ += cut.tiles * narrow;
      has_three_ |= cut.whole > 0;
    }
    grain_ = static_cast<int>(GrainOf(tiles_, thin_[0], k_blocks_, fused, kSms));
  }

  bool finer() const { return grain_ != static_cast<int>(Grain::kWide); }
  // By the kernel for groups of any size, whose grain the device chooses.
  float OfAnySize() const {
    constexpr int kThin = static_cast<int>(Grain::kThin);
    const int fine = TileClocks(grain_, k_blocks_, fused_);
    const int thin = TileClocks(kThin, k_blocks_, fused_);
    if (tiles_[0] == 0) return AllClocks(thin_[0], thin, 0, thin, kSms);
    return AllClocks(tiles_[grain_], fine, thin_[0], thin, kSms);
  }
  // By units, which multiply fewer rows of nobody's and have less code to fetch.
  float OfUnits() const {
    constexpr int kTwoUnits = 700, kThreeUnits = 850, kCode = 2500;
    const int clocks = (has_three_ ? kThreeUnits : kTwoUnits) * k_blocks_;
    return AllClocks(units_, clocks, 0, 0, kSms) - kCode;
  }

 private:
  bool fused_;
  int k_blocks_;
  int tiles_[kGrains] = {}, thin_[kGrains] = {};
  int units_ = 0;
  bool has_three_ = false;
  int grain_ = 0;
};

// The kernel for few tiles, none where that makes no difference. `padded`: rows are some of
// nobody's, maybe most.
std::optional<RowsKernel> KernelOfFewTiles(const GroupedExtents& extents, bool padded, bool fused) {
  constexpr double kFewRounds = 1.4;
  constexpr int64_t kFewRows = 16;
  const double rounds = RoundsOf(extents);
  if (rounds > kFewRounds) return {};
  if (extents.rows <= std::max<int64_t>(kThinRows, kFewRows * extents.groups)) {
    return RowsKernel::kFew;
  }
  if (padded) return rounds > 1 ? std::nullopt : std::optional(RowsKernel::kFew);
  const FewTiles tiles(extents, fused);
  if (fused) return tiles.finer() ? std::optional(RowsKernel::kFew) : std::nullopt;
  if (tiles.OfUnits() < tiles.OfAnySize()) return RowsKernel::kUnits;
  return tiles.finer() || rounds <= 1 ? std::optional(RowsKernel::kFew) : std::nullopt;
}

// A rest's registers and staging cost whole tiles 1 % where k is long, 3 % where it is short and
// more where there are few tiles. Of two or three pairs' rows one in eight is worth the former;
// where routers give tokens evenly to experts that get 256 each, half of the groups have one.
bool RestsPay(const GroupedExtents& extents, double rounds) {
  constexpr int64_t kLongK = 4096, kLeastK = 2048, kMost = 640, kLeastEven = 224, kMostEven = 304;
  constexpr double kManyRounds = 16;
  const int64_t groups = extents.groups;
  if (extents.rows > kMost * groups) return false;
  if (rounds < kManyRounds) return false;
  return extents.k >= kLongK || (extents.k >= kLeastK && extents.rows > kLeastEven * groups &&
                                 extents.rows <= kMostEven * groups);
}

// Rows of all groups: of those that lie at multiples of an alignment, half of it lies between two.
int64_t UsefulRows(const GroupedMatmulOp& op, int64_t groups) {
  const int64_t rows = ExpectedRows(op);
  if (op.layout != GroupLayout::kEnds || op.expected_rows > 0) return rows;
  return std::max(rows / 2, rows - groups * (op.alignment / 2));
}

// By the groups' mean, which is what the host knows. Of counts it knows no more than their limit,
// unless the op says how many rows to expect. Limits are fitted to grouped_bench's broad-fit.
RowsKernel RoundingKernelOf(const GroupedMatmulOp& op, bool fused) {
  constexpr int64_t kOneWideTile = kWideRows, kThreeUnits = 3 * kUnitRows, kUnitsK = 2048;
  constexpr double kUnitsRounds = 6;
  if (op.layout == GroupLayout::kCounts && op.expected_rows == 0) return RowsKernel::kFew;
  GroupedExtents extents(op);
  extents.rows = UsefulRows(op, extents.groups);
  const bool aligned = op.layout == GroupLayout::kEnds && op.alignment > 1;
  const bool padded = op.expected_rows == 0 && (aligned || op.layout == GroupLayout::kRowIds);
  if (const auto kernel = KernelOfFewTiles(extents, padded, fused)) return *kernel;
  if (fused) {  // of those with a gate, pairs have rests
    return extents.rows > kThreeUnits * extents.groups ? RowsKernel::kRests : RowsKernel::kFew;
  }
  if (extents.rows <= kOneWideTile * extents.groups) return RowsKernel::kFew;
  const double rounds = RoundsOf(extents);
  if (extents.rows <= kThreeUnits * extents.groups) {
    // Units are stored more often for as many products: that takes long k, or a better last round.
    return extents.k >= kUnitsK || rounds <= kUnitsRounds ? RowsKernel::kUnits : RowsKernel::kPairs;
  }
  const bool int8 = op.a.values.dtype == DType::kI8;  // which has no rests
  return !int8 && RestsPay(extents, rounds) ? RowsKernel::kRests : RowsKernel::kPairs;
}

}  // namespace

// In place of units, whose groups have two wide tiles at most, that for groups of any size.
RowsKernel RowsKernelOf(const GroupedMatmulOp& op, bool fused) {
  const RowsKernel rows = RoundingKernelOf(op, fused);
  if (fused || !NeedsFinish(op) || Finishes(rows)) return rows;
  return rows == RowsKernel::kUnits ? RowsKernel::kFew : RowsKernel::kPairs;
}

}  // namespace gemmd::kernels::cuda
