// A grouped matmul to be timed: FP8 with block scales or a type of 16 bits, and where its rows lie.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/op.h"

namespace gemmd::kernels::bench {

struct GroupedBenchCase {
  std::string suite;           // "masked", "thin", "prefill", "ragged", ..
  DType dtype = DType::kE4M3;  // of the operands; FP8 gives BF16, others their own type
  GroupLayout layout = GroupLayout::kOffsets;
  std::vector<int64_t> rows;  // of each group
  int64_t m_max = 0;          // of kCounts
  bool expects = false;       // the op tells how many rows to expect
  int64_t alignment = 1;      // of kRowIds and kEnds: groups start at its multiples
  int64_t useful_rows = 0;    // of all groups, where others are padding; 0: all are useful
  int64_t n = 0;
  int64_t k = 0;
  bool blocks = true;        // of E4M3 and INT8: scales of blocks; else of rows
  double wanted_us = 0;      // at most; 0: none
  double wanted_tflops = 0;  // at least; 0: none
  double wanted_read = 0;    // at most, of a plain read of the same; 0: none
  int line = 0;              // of what it is to show; 0: none

  int64_t total_rows() const;
  // The same with each group's rows padded to multiples of `step`, multiplied like the others.
  GroupedBenchCase Padded(int64_t step) const;
  int64_t active_groups() const;
  // Of a, where groups lie behind one another: the first row of each, and behind them the end.
  std::vector<int64_t> starts() const;
  double flops() const;  // useful ones: padding is not counted
  std::string name() const;
};

// Those of a suite, or of all for "all", in E4M3, INT8, BF16 or FP16. `blocks`: scales of 1x128 and
// 128x128, which E4M3 always has. Random sizes are drawn from `seed`.
std::vector<GroupedBenchCase> GroupedCases(const std::string& suite, DType dtype, bool blocks,
                                           uint64_t seed);

// "64x300x4096x7168", groups x rows x n x k, or "64x96..512x4096x7168", whose rows are drawn from
// `seed`. Any number of them, with commas between.
absl::StatusOr<std::vector<GroupedBenchCase>> ParseCases(const std::string& text, DType dtype,
                                                         bool blocks, uint64_t seed);

}  // namespace gemmd::kernels::bench
