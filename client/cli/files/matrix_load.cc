#include <cmath>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/files/matrix.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/safetensors.h"
#include "status/propagate.h"

namespace gemmd::files {
namespace {

constexpr absl::string_view kNpy = ".npy";
constexpr absl::string_view kSafetensors = ".safetensors";

absl::Status InFile(const MatrixPath& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path.file, ": ", status.message()));
}

absl::Status CheckShape(const MatrixPath& path, const std::vector<int64_t>& shape) {
  if (shape.empty() || shape.size() > 3) {
    return absl::InvalidArgumentError(absl::StrCat(path.file, ": shape ", ShapeText(shape), " has ",
                                                   shape.size(),
                                                   " extents, 1 to 3 are served; reshape it"));
  }
  for (int64_t extent : shape) {
    if (extent > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(path.file, ": shape ", ShapeText(shape),
                                                   " is empty; every extent must be at least 1"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MatrixPath> ParseMatrixPath(absl::string_view text) {
  MatrixPath path;
  if (absl::EndsWith(text, kNpy)) {
    path.file = std::string(text);
    return path;
  }
  // The first ".safetensors" that ends the text or is followed by ':' ends the file's name: tensor
  // names may hold colons, dots and slashes of their own.
  for (size_t at = text.find(kSafetensors); at != text.npos; at = text.find(kSafetensors, at + 1)) {
    const size_t end = at + kSafetensors.size();
    if (end != text.size() && text[end] != ':') continue;
    path.file = std::string(text.substr(0, end));
    path.tensor = end < text.size() ? std::string(text.substr(end + 1)) : "";
    path.safetensors = true;
    return path;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text,
      "' is neither FILE.npy nor FILE.safetensors[:NAME]; the extension says the format"));
}

absl::StatusOr<Matrix> LoadMatrix(absl::string_view text, std::optional<DType> opaque_as) {
  GEMMD_ASSIGN_OR_RETURN(MatrixPath path, ParseMatrixPath(text));
  GEMMD_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path.file));
  Matrix matrix;
  matrix.mapping_ = std::move(mapping);
  bool fortran_order = false;
  if (path.safetensors) {
    absl::StatusOr<SafetensorsView> view = ParseSafetensors(matrix.mapping_.bytes());
    if (!view.ok()) return InFile(path, view.status());
    absl::StatusOr<const SafetensorsEntry*> entry = view->Find(path.tensor);
    if (!entry.ok()) return InFile(path, entry.status());
    if (!(*entry)->dtype) {
      return absl::InvalidArgumentError(absl::StrCat(
          path.file, ": tensor '", (*entry)->name, "' is ", (*entry)->dtype_name.substr(0, 40),
          ", which is not multiplied; F32, BF16, F16, F8_E4M3, F8_E5M2, I8 and F64 (narrowed to "
          "F32) are: convert it where it is saved"));
    }
    matrix.dtype_ = *(*entry)->dtype;
    matrix.shape_ = (*entry)->shape;
    matrix.bytes_ = (*entry)->data;
  } else {
    absl::StatusOr<NpyView> view = ParseNpy(matrix.mapping_.bytes(), opaque_as);
    if (!view.ok()) return InFile(path, view.status());
    matrix.dtype_ = view->dtype;
    matrix.shape_ = std::move(view->shape);
    matrix.bytes_ = view->data;
    fortran_order = view->fortran_order;
  }
  GEMMD_RETURN_IF_ERROR(CheckShape(path, matrix.shape_));
  if (fortran_order && matrix.shape_.size() > 1) matrix.ToRowMajor();
  matrix.file_dtype_ = matrix.dtype_;
  matrix.file_values_ = matrix.bytes_;
  if (matrix.dtype_ == DType::kF64) matrix.ToFloat32();
  return matrix;
}

void Matrix::ToFloat32() {
  const int64_t count = static_cast<int64_t>(bytes_.size()) / 8;
  std::vector<std::byte> floats(count * sizeof(float));
  for (int64_t i = 0; i < count; ++i) {
    const double wide = ElementAt(DType::kF64, bytes_.data(), i);
    const float value = static_cast<float>(wide);
    if (std::isinf(value) && !std::isinf(wide)) ++overflowed_;
    std::memcpy(floats.data() + i * sizeof(float), &value, sizeof(float));
  }
  file_copy_ = std::move(copy_);  // moving it moves no bytes: file_values_ stays right
  copy_ = std::move(floats);
  bytes_ = copy_;
  dtype_ = DType::kF32;
}

void Matrix::ToRowMajor() {
  const int64_t size = ElementSize(dtype_);
  std::vector<std::byte> rows(bytes_.size());
  // As three extents, leading ones filled with 1; column-major strides grow from the first extent
  // on.
  int64_t extent[3] = {1, 1, 1};
  std::copy(shape_.begin(), shape_.end(), extent + 3 - shape_.size());
  std::byte* out = rows.data();
  for (int64_t i = 0; i < extent[0]; ++i) {
    for (int64_t j = 0; j < extent[1]; ++j) {
      for (int64_t l = 0; l < extent[2]; ++l, out += size) {
        std::memcpy(out, bytes_.data() + (i + extent[0] * (j + extent[1] * l)) * size, size);
      }
    }
  }
  copy_ = std::move(rows);
  bytes_ = copy_;
  notes_.push_back("transposed in memory from column-major (Fortran) order");
}

}  // namespace gemmd::files
