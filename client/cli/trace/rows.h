// Rows: where slices are drawn that may overlap, as waits and calls do. A row of a trace viewer
// shows slices one after the other, or one within another; of two that overlap otherwise it drops
// one. So each is given a row that is free when it begins.

#pragma once

#include <cstdint>
#include <vector>

namespace gemmd::cli {

class Rows {
 public:
  explicit Rows(int most) : most_(most) {}

  // The row of a slice, 0 to `most` - 1; -1 when none is free. Among free ones that which was in
  // use last, so that a few rows are full rather than many sparse.
  int Place(int64_t begin_ns, int64_t end_ns);

  // Where the first row's last slice ends; 0 before there is one.
  int64_t first_row_end_ns() const { return ends_.empty() ? 0 : ends_[0]; }

 private:
  const int most_;
  std::vector<int64_t> ends_;  // by row
};

}  // namespace gemmd::cli
