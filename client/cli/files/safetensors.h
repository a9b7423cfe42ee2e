// The .safetensors format: 8 bytes of header length, a JSON header, then the tensors back to back.
// Read from bytes that nobody vouches for: depth, size, names, shapes and offsets are all checked
// before a tensor is handed out.

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

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // as the file writes it: "F8_E4M3"
  std::optional<DType> dtype;  // nothing when gemmd does not serve this type
  std::vector<int64_t> shape;
  absl::Span<const std::byte> data;  // row-major; points into the bytes that were parsed
};

struct SafetensorsView {
  std::vector<SafetensorsEntry> tensors;  // in the order of their data

  // NOT_FOUND lists the first names there are. An empty name takes the only tensor of a file that
  // has one.
  absl::StatusOr<const SafetensorsEntry*> Find(absl::string_view name) const;
};

absl::StatusOr<SafetensorsView> ParseSafetensors(absl::Span<const std::byte> file);

absl::string_view SafetensorsTypeName(DType dtype);  // "BF16"

// Everything before the data of a file with this one tensor, padded so that the data begins at a
// multiple of 64 bytes.
std::string SafetensorsHeader(absl::string_view name, DType dtype, std::span<const int64_t> shape);

namespace internal {

// In a header beside the tensors: strings about the file. No tensor can have this name.
inline constexpr char kMetadataKey[] = "__metadata__";

// A header's JSON with its length in front and blanks behind, so that the data begins at a multiple
// of 64 bytes.
std::string SafetensorsFrame(std::string json);

// The header's JSON, not yet compared with the file's size.
struct RawTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> data_offsets;
  bool has_shape = false;  // an empty shape is a scalar, a missing one an error
};
absl::StatusOr<std::vector<RawTensor>> ParseSafetensorsJson(absl::string_view json);

}  // namespace internal
}  // namespace gemmd::files
