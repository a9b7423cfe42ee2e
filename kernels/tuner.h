// Tuner: what a backend has whose choice of a matmul's kernel can be measured while it serves. It
// says which kernels are worth measuring and keeps what was measured; who measures, and when, is
// the caller's business (shape_trial.h). The choice then changes for programs that are compiled
// afterwards, never for one that is under way.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/kernel.h"
#include "kernels/op.h"

namespace gemmd::kernels {

class Program;

// What a measured choice is kept by: a weight's shape [n, k], how many rows meet it, and the type
// of the result.
struct TuneShape {
  int64_t m = 0, n = 0, k = 0;
  DType out = DType::kBF16;
  friend bool operator==(const TuneShape&, const TuneShape&) = default;
  friend bool operator<(const TuneShape& x, const TuneShape& y) {
    return std::tie(x.n, x.k, x.out, x.m) < std::tie(y.n, y.k, y.out, y.m);
  }
  template <class H>
  friend H AbslHashValue(H h, const TuneShape& shape) {
    return H::combine(std::move(h), shape.m, shape.n, shape.k, shape.out);
  }
};

// "m=64 n=4096 k=7168 bf16"
std::string ToString(const TuneShape& shape);

// Rows that one measurement stands for: the next of 1, 2, 4, 8, 16, 24, 32, 48, ... that is not
// below `rows`. 0 beyond kMostTunedRows, where kernels differ little.
inline constexpr int64_t kMostTunedRows = 16384;
int64_t RowBucket(int64_t rows);
// Those up to 4096, for a weight of which nobody knows how it will be used.
absl::Span<const int64_t> UsualRowBuckets();

// How often one run of a program multiplies that shape, and how its kernel was chosen.
struct ShapeCalls {
  TuneShape shape;
  ChoiceReason reason = ChoiceReason::kModel;
  int calls = 0;
};

struct KernelTime {
  std::string kernel;
  double seconds = 0;
};

struct ShapeTimes {
  TuneShape shape;
  std::vector<KernelTime> times;  // in any order
};

struct TuningImport {
  int shapes = 0;       // taken over
  std::string skipped;  // what was left out and why; empty when nothing was
};

// Thread-safe.
class Tuner {
 public:
  virtual ~Tuner() = default;

  // The kernels to measure for `shape`: the one that would be taken now, then the cost model's
  // best, `most` in all. UNIMPLEMENTED, with the reason, when none of those that have a choice
  // serves it.
  virtual absl::StatusOr<std::vector<std::string>> Contenders(const TuneShape& shape,
                                                              int most) const = 0;
  // What would be taken now.
  virtual absl::StatusOr<KernelChoice> Current(const TuneShape& shape) const = 0;
  // A buffer of so many bytes, written, leaves nothing else in the device's caches.
  virtual int64_t flush_bytes() const = 0;
  // As Backend::Compile, for a program that runs a few times: it is not remembered, and each of its
  // ops is timed.
  virtual absl::StatusOr<std::shared_ptr<const Program>> CompileTrial(absl::Span<const Op> ops) = 0;

  // Chooses by these times from now on. Takes all or, with the reason, nothing: INVALID_ARGUMENT
  // for a time that is none, RESOURCE_EXHAUSTED beyond as many shapes as are kept.
  virtual absl::Status Keep(absl::Span<const ShapeTimes> measured) = 0;
  // Another number each time that choices have changed.
  virtual uint64_t generation() const = 0;
  virtual int kept_shapes() const = 0;

  // All that was kept, as text that Import takes, here or on another device of this model.
  virtual std::string Export(std::string_view date) const = 0;
  // Adds what such a text has: of a shape that both have, the mean of the times.
  // FAILED_PRECONDITION when it is of another model of device or all of it of other machine code,
  // INVALID_ARGUMENT when it is no such text; then nothing changes.
  virtual absl::StatusOr<TuningImport> Import(std::string_view text) = 0;
};

}  // namespace gemmd::kernels
