// A .npy file. Any bytes: no crash; what is accepted holds exactly the elements it speaks of.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "client/cli/files/npy.h"

namespace {

using gemmd::files::DType;

void Parse(absl::Span<const std::byte> bytes, std::optional<DType> opaque_as) {
  const auto view = gemmd::files::ParseNpy(bytes, opaque_as);
  if (!view.ok()) {
    if (view.status().message().empty()) __builtin_trap();
    return;
  }
  const auto dense = gemmd::files::DenseBytes(view->shape, gemmd::files::ElementSize(view->dtype));
  if (!dense.ok() || *dense != static_cast<int64_t>(view->data.size())) __builtin_trap();
  // Inside the file: the sanitizer looks at every byte that is read.
  for (int64_t i = 0; i < *dense / gemmd::files::ElementSize(view->dtype); ++i) {
    volatile double value = gemmd::files::ElementAt(view->dtype, view->data.data(), i);
    (void)value;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  Parse(bytes, std::nullopt);
  Parse(bytes, DType::kE4m3);
  Parse(bytes, DType::kBf16);
  return 0;
}
