// A matrix from a file, in either format, as the server wants it: row-major, little-endian, of a
// type it serves.
//
//   absl::StatusOr<Matrix> a = LoadMatrix("weights.safetensors:layer.0.w");
//   Use(a->dtype(), a->shape(), a->bytes());

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cli/files/dtype.h"
#include "client/cli/files/mapped_file.h"
#include "client/cli/files/new_file.h"

namespace gemmd::files {

// Where a matrix is or goes: "FILE.npy", "FILE.safetensors", "FILE.safetensors:NAME".
struct MatrixPath {
  std::string file;
  std::string tensor;  // "" when not named
  bool safetensors = false;
};

// By the extension. INVALID_ARGUMENT for another one.
absl::StatusOr<MatrixPath> ParseMatrixPath(absl::string_view text);

// Move-only. Keeps the mapping, or the copy where one was needed.
class Matrix {
 public:
  DType dtype() const { return dtype_; }                        // never kF64
  const std::vector<int64_t>& shape() const { return shape_; }  // 1 to 3 extents, each above 0
  absl::Span<const std::byte> bytes() const { return bytes_; }
  // The elements as the file has them, row-major; the same as above unless narrowed().
  DType file_dtype() const { return file_dtype_; }
  const std::byte* file_values() const { return file_values_.data(); }
  bool narrowed() const { return file_dtype_ != dtype_; }  // from kF64 to kF32
  // Elements that kF32 has no finite value for and that became infinite.
  int64_t overflowed() const { return overflowed_; }
  // What else was done to it on the way, for people: "transposed in memory ..".
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  friend absl::StatusOr<Matrix> LoadMatrix(absl::string_view text, std::optional<DType> opaque_as);
  void ToFloat32();
  void ToRowMajor();

  DType dtype_ = DType::kF32;
  std::vector<int64_t> shape_;
  absl::Span<const std::byte> bytes_;  // into mapping_ or copy_
  MappedFile mapping_;
  std::vector<std::byte> copy_;
  DType file_dtype_ = DType::kF32;
  absl::Span<const std::byte> file_values_;  // into mapping_, copy_ or file_copy_
  std::vector<std::byte> file_copy_;
  int64_t overflowed_ = 0;
  std::vector<std::string> notes_;
};

// `opaque_as` as in ParseNpy. The error names the file, what is wrong, and what to do.
absl::StatusOr<Matrix> LoadMatrix(absl::string_view text,
                                  std::optional<DType> opaque_as = std::nullopt);

// A file being written: fill data(), then Commit. Until then nothing stands under its name, so that
// an interrupted run leaves no half file.
class MatrixWriter {
 public:
  // The tensor's name in a .safetensors file is "D" unless `text` gives one. A file that is there
  // already is refused (ALREADY_EXISTS), in words that tell what it holds. With kReplace a .npy
  // file is replaced; in a .safetensors file the tensor is added or replaced and the others stay,
  // byte for byte. One that is no .safetensors file is refused then, too.
  static absl::StatusOr<MatrixWriter> Create(absl::string_view text, DType dtype,
                                             std::vector<int64_t> shape,
                                             Existing existing = Existing::kKeep);

  MatrixWriter(MatrixWriter&&) noexcept;
  MatrixWriter& operator=(MatrixWriter&&) noexcept;
  ~MatrixWriter();  // discards what was not committed

  absl::Span<std::byte> data();
  // ABORTED when a .safetensors file has changed since Create: what came to it would be lost.
  absl::Status Commit();

 private:
  struct State;
  explicit MatrixWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace gemmd::files
