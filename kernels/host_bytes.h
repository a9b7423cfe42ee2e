// HostBytes: bytes in host memory, in one run or in several, one behind the other: gRPC receives a
// message in pieces, and gathering them first would copy every byte once more.

#pragma once

#include <cstddef>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace gemmd::kernels {

// Points at memory that others own. Neighbouring runs stay apart: an empty one is left out.
class HostBytes {
 public:
  using Run = absl::Span<const std::byte>;

  HostBytes() = default;
  HostBytes(Run run) { Append(run); }

  void Append(Run run) {
    if (run.empty()) return;
    runs_.push_back(run);
    size_ += run.size();
  }

  size_t size() const { return size_; }
  absl::Span<const Run> runs() const { return runs_; }

  // All of them to `target`, which has room for size().
  void CopyTo(std::byte* target) const {
    for (const Run run : runs_) {
      std::memcpy(target, run.data(), run.size());
      target += run.size();
    }
  }

 private:
  absl::InlinedVector<Run, 1> runs_;
  size_t size_ = 0;
};

}  // namespace gemmd::kernels
