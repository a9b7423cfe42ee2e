// NumPy's .npy format, versions 1 to 3, read from bytes that nobody vouches for.
//
// BF16 and FP8 have no name in .npy: numpy with ml_dtypes writes them as opaque bytes ("<V2",
// "|V1"), so the caller says what they are. Every refusal names the value, the limit and the
// remedy.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/files/dtype.h"

namespace gemmd::files {

// A parsed file. `data` points into the bytes that were parsed.
struct NpyView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;        // as numpy shows it; [] for a scalar
  bool fortran_order = false;        // data lies column-major
  absl::Span<const std::byte> data;  // exactly the elements
};

// `opaque_as` is what "V1" and "V2" elements are: kE4m3, kE5m2 or kI8, and kBf16 or kF16. Ignored
// where the file says its type.
absl::StatusOr<NpyView> ParseNpy(absl::Span<const std::byte> file,
                                 std::optional<DType> opaque_as = std::nullopt);

// Everything before the data of a C-order array, padded so that the data begins at a multiple of 64
// bytes.
std::string NpyHeader(DType dtype, std::span<const int64_t> shape);

namespace internal {

// The three fields of a header's dictionary, as text and numbers.
struct NpyDict {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }" and nothing else: Python in a
// header is never evaluated.
absl::StatusOr<NpyDict> ParseNpyDict(absl::string_view text);

}  // namespace internal
}  // namespace gemmd::files
