#include "kernels/cuda/memory/free_list.h"

#include <iterator>

namespace gemmd::kernels::cuda {

FreeList::FreeList(int64_t size_bytes) : size_bytes_(size_bytes) { Add(0, size_bytes); }

void FreeList::Add(int64_t offset, int64_t bytes) {
  by_offset_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

FreeList::Holes::iterator FreeList::Remove(Holes::iterator hole) {
  by_size_.erase({hole->second, hole->first});
  return by_offset_.erase(hole);
}

std::optional<int64_t> FreeList::Take(int64_t bytes) {
  const auto fit = by_size_.lower_bound({bytes, 0});
  if (fit == by_size_.end()) return std::nullopt;
  const auto [size, offset] = *fit;
  Remove(by_offset_.find(offset));
  if (size > bytes) Add(offset + bytes, size - bytes);
  return offset;
}

void FreeList::Give(int64_t offset, int64_t bytes) {
  auto next = by_offset_.lower_bound(offset);
  if (next != by_offset_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = Remove(next);
  }
  if (next != by_offset_.begin()) {
    const auto last = std::prev(next);
    if (last->first + last->second == offset) {
      offset = last->first;
      bytes += last->second;
      Remove(last);
    }
  }
  Add(offset, bytes);
}

}  // namespace gemmd::kernels::cuda
