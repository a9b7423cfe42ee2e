// A .safetensors file. Any bytes: no crash; every tensor that is handed out lies inside the file
// and has exactly the bytes its shape and type take.

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "client/cli/files/safetensors.h"

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
  return 0;
}
