#include "kernels/other_kernels.h"

#include <cstddef>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/op_fields.h"
#include "kernels/text.h"

namespace gemmd::kernels {

std::vector<KernelInfo> OtherKernels(std::string_view prefix) {
  std::vector<KernelInfo> kernels;
  const auto add = [&]<class T>(OpKind<T>) {
    if (OpKind<T>::kKernel.empty()) return;
    const std::string name = absl::StrCat(Text(prefix), "_", Text(OpKind<T>::kName));
    kernels.push_back({name, name, std::string(OpKind<T>::kKernel)});
  };
  [&]<size_t... i>(std::index_sequence<i...>) {
    (add(OpKind<std::variant_alternative_t<i, Op>>()), ...);
  }
  (std::make_index_sequence<std::variant_size_v<Op>>());
  return kernels;
}

}  // namespace gemmd::kernels
