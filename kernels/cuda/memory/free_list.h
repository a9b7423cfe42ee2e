// FreeList: which parts of a range of bytes are free. Best fit, neighbours joined. Pure: it knows
// offsets, not memory.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace gemmd::kernels::cuda {

class FreeList {
 public:
  explicit FreeList(int64_t size_bytes);

  // The offset of `bytes` out of the smallest hole that has them; nothing when none does.
  std::optional<int64_t> Take(int64_t bytes);
  // Gives back exactly what one Take gave.
  void Give(int64_t offset, int64_t bytes);

  int64_t largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  bool unused() const { return largest() == size_bytes_; }

 private:
  using Holes = std::map<int64_t, int64_t>;  // offset to size

  void Add(int64_t offset, int64_t bytes);
  Holes::iterator Remove(Holes::iterator hole);

  const int64_t size_bytes_;
  Holes by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;  // {size, offset} of the same holes
};

}  // namespace gemmd::kernels::cuda
