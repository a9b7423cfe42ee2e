#include "kernels/cpu/matmul/matmul.h"

namespace gemmd::kernels::cpu {
namespace {

// Adding a kernel: a file with the three functions, a line in matmul.h, a row here.
constexpr MatmulKernel kMatmulKernels[] = {
    {"cpu_f32_blas", "cpu_blas",
     "FP32 by OpenBLAS in place, no copies; needs unit stride in one dimension of a, b and d",
     BlasWhyNot, BlasSeconds, RunBlas},
    {"cpu_any_panel", "cpu_panel",
     "any type but i8, any strides and scales: panels converted into cache, then OpenBLAS",
     PanelWhyNot, PanelSeconds, RunPanel},
    {"cpu_i8_exact", "cpu_int8",
     "i8 with any strides and scales: integer sums are exact, whatever k is", Int8WhyNot,
     Int8Seconds, RunInt8},
    {"cpu_any_dot", "cpu_dot",
     "at most 32 rows in a, unit stride along k in b: vector loops, b is read once", DotWhyNot,
     DotSeconds, RunDot},
};

}  // namespace

absl::Span<const MatmulKernel> MatmulKernels() { return kMatmulKernels; }

}  // namespace gemmd::kernels::cpu
