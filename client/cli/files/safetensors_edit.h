// A .safetensors file with one tensor more, or with another one in a tensor's place. The other
// tensors keep their bytes, their types as the file spells them, and its __metadata__.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/files/dtype.h"

namespace gemmd::files {

// The new file: header, `before`, the new tensor's own bytes, `after`.
struct SafetensorsEdit {
  std::string header;
  // Into the old file's bytes.
  std::vector<absl::Span<const std::byte>> before, after;
};

// `file` is the old one. INVALID_ARGUMENT when it is not a .safetensors file. The new tensor lies
// behind the last one whose elements are as wide, so that no tensor loses its alignment in a file
// that orders them by width, as the format's own library does.
absl::StatusOr<SafetensorsEdit> EditSafetensors(absl::Span<const std::byte> file,
                                                absl::string_view name, DType dtype,
                                                std::span<const int64_t> shape);

}  // namespace gemmd::files
