#include "kernels/other_kernels.h"

#include <iterator>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/op.h"
#include "kernels/text.h"

namespace gemmd::kernels {
namespace {

struct OtherKernel {
  std::string_view op;  // Name(op)
  std::string_view description;
};

constexpr OtherKernel kOtherKernels[] = {
    {"quantize", "f32, bf16 or f16 to e4m3, e5m2 or i8, any strides and granularity"},
    {"gated", "activation(gate) * up, f32, bf16 or f16 to those or e4m3 with scales of 1x128"},
    {"convert", "any type to any other, any strides"},
    {"copy", "any strides"},
    {"fill", "one value, any strides"},
    {"write", "bytes of the request into a tensor of any strides"},
    {"read", "a tensor of any strides into bytes of the reply"},
    {"grouped_matmul", "any type, strides and scales, one matrix of b for each group of rows"},
    {"route", "rows of chosen experts, in the experts' order"},
    {"combine", "sums of rows by their weights"},
    {"k_grouped_matmul", "any type, strides and scales, one product for each group of columns"},
};
static_assert(std::size(kOtherKernels) + 1 == std::variant_size_v<Op>, "a kernel for every op");

}  // namespace

std::vector<KernelInfo> OtherKernels(std::string_view prefix) {
  std::vector<KernelInfo> kernels;
  for (const OtherKernel& kernel : kOtherKernels) {
    const std::string name = absl::StrCat(Text(prefix), "_", Text(kernel.op));
    kernels.push_back({name, name, std::string(kernel.description)});
  }
  return kernels;
}

}  // namespace gemmd::kernels
