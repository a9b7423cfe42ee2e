// A matrix from a file, in either format, as the server wants it: row-major, little-endian, of a
// type it serves.
//
//   absl::StatusOr<Matrix> a = LoadMatrix("weights.safetensors:layer.0.w");
//   Use(a->dtype(), a->shape(), a->bytes());

#ifndef GEMMD_CLIENT_CLI_FILES_MATRIX_H_
#define GEMMD_CLIENT_CLI_FILES_MATRIX_H_

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
  // What was done to it on the way, for people: "converted from f64 to f32".
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
  std::vector<std::string> notes_;
};

// `opaque_as` as in ParseNpy. The error names the file, what is wrong, and what to do.
absl::StatusOr<Matrix> LoadMatrix(absl::string_view text,
                                  std::optional<DType> opaque_as = std::nullopt);

// A file being written: fill data(), then Commit. Until then nothing stands under its name, so that
// an interrupted run leaves no half file.
class MatrixWriter {
 public:
  // The tensor's name in a .safetensors file is "D" unless `text` gives one.
  static absl::StatusOr<MatrixWriter> Create(absl::string_view text, DType dtype,
                                             std::vector<int64_t> shape);

  MatrixWriter(MatrixWriter&&) noexcept;
  MatrixWriter& operator=(MatrixWriter&&) noexcept;
  ~MatrixWriter();  // discards what was not committed

  absl::Span<std::byte> data();
  absl::Status Commit();  // replaces a file of that name

 private:
  struct State;
  explicit MatrixWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace gemmd::files

#endif  // GEMMD_CLIENT_CLI_FILES_MATRIX_H_
