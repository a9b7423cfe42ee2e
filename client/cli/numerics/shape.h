// The extents of a matmul, from the shapes of its matrices.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace gemmd::cli {

struct MatmulShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool a_batched = false;  // A and D have a leading batch extent
  bool b_batched = false;  // B too; otherwise one B serves every batch entry

  std::vector<int64_t> DShape() const;
};

// A is [m, k] or [batch, m, k]; B is [k, n], or [n, k] with `nt`, and may lead with A's batch.
// INVALID_ARGUMENT names the extents that do not meet.
absl::StatusOr<MatmulShape> ShapeOfMatmul(absl::Span<const int64_t> a, absl::Span<const int64_t> b,
                                          bool nt);

// C must have D's shape, a bias n elements.
absl::Status CheckC(const MatmulShape& shape, absl::Span<const int64_t> c);
absl::Status CheckBias(const MatmulShape& shape, absl::Span<const int64_t> bias);

}  // namespace gemmd::cli
