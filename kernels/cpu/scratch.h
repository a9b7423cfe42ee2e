// Scratch: working memory that a stream keeps from one program to the next, so that a launch
// neither allocates nor faults pages in. It grows to what its largest kernel asked for, which the
// kernels' block sizes bound, never the request's shapes.

#pragma once

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace gemmd::kernels::cpu {

// Thread-compatible: belongs to whoever runs the stream's program.
class Scratch {
 public:
  // Which buffer: a kernel uses each for one thing, so that none moves under another.
  enum Use { kPanelA, kPanelB, kTile, kAccumulator, kFactors, kNumUses };

  // At least `count` elements of T, 64-byte aligned, contents undefined, until the next Get of the
  // same use.
  template <class T>
  T* Get(Use use, int64_t count) {
    Buffer& buffer = buffers_[use];
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (bytes > buffer.bytes) Grow(buffer, bytes);
    return reinterpret_cast<T*>(buffer.data.get());
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  struct Buffer {
    std::unique_ptr<std::byte, Free> data;
    size_t bytes = 0;
  };

  static void Grow(Buffer& buffer, size_t bytes) {
    // sgemm walks a panel across its rows: with 4 KiB pages it spends a tenth of its time on the
    // TLB.
    constexpr size_t kHugePage = 2 << 20;
    const size_t unit = bytes < kHugePage / 2 ? 4096 : kHugePage;
    const size_t rounded = (bytes + unit - 1) / unit * unit;
    buffer.data.reset();  // before the new one, so that the peak is one buffer
    buffer.data.reset(static_cast<std::byte*>(std::aligned_alloc(unit, rounded)));
    if (buffer.data == nullptr) std::abort();  // bounded, so the machine itself is out of memory
    if (unit == kHugePage) ::madvise(buffer.data.get(), rounded, MADV_HUGEPAGE);  // a hint
    buffer.bytes = rounded;
  }

  std::array<Buffer, kNumUses> buffers_;
};

}  // namespace gemmd::kernels::cpu
