// A .safetensors file. Any bytes: no crash; every tensor that is handed out lies inside the file
// and has exactly the bytes its shape and type take.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client/cli/files/safetensors.h"
#include "client/cli/files/safetensors_edit.h"

namespace {

using gemmd::files::DType;

// The file with one tensor more is a .safetensors file again, and the others have their bytes.
void CheckEdit(absl::Span<const std::byte> file, const gemmd::files::SafetensorsView& old) {
  constexpr char kName[] = "new";
  const std::vector<int64_t> shape = {3};
  const auto edit = gemmd::files::EditSafetensors(file, kName, DType::kBf16, shape);
  if (!edit.ok()) __builtin_trap();
  std::string bytes = edit->header;
  const auto append = [&](absl::Span<const std::byte> piece) {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  };
  for (absl::Span<const std::byte> piece : edit->before) append(piece);
  bytes += "newnew";
  for (absl::Span<const std::byte> piece : edit->after) append(piece);
  const auto view = gemmd::files::ParseSafetensors(
      {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
  if (!view.ok()) __builtin_trap();
  for (const gemmd::files::SafetensorsEntry& tensor : old.tensors) {
    if (tensor.name == kName) continue;
    const auto kept = view->Find(tensor.name);
    if (!kept.ok() || (*kept)->data != tensor.data || (*kept)->dtype_name != tensor.dtype_name ||
        (*kept)->shape != tensor.shape) {
      __builtin_trap();
    }
  }
  const auto added = view->Find(kName);
  if (!added.ok() || (*added)->data.size() != 6) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto view = gemmd::files::ParseSafetensors(bytes);
  if (!view.ok()) {
    if (view.status().message().empty()) __builtin_trap();
    return 0;
  }
  for (const gemmd::files::SafetensorsEntry& tensor : view->tensors) {
    if (!tensor.data.empty() &&
        (tensor.data.data() < bytes.data() ||
         tensor.data.data() + tensor.data.size() > bytes.data() + bytes.size())) {
      __builtin_trap();
    }
    if (!view->Find(tensor.name).ok()) __builtin_trap();
    if (!tensor.dtype.has_value()) continue;
    const auto dense =
        gemmd::files::DenseBytes(tensor.shape, gemmd::files::ElementSize(*tensor.dtype));
    if (!dense.ok() || *dense != static_cast<int64_t>(tensor.data.size())) __builtin_trap();
  }
  CheckEdit(bytes, *view);
  return 0;
}
