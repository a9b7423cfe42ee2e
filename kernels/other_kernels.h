// The kernels for ops other than matmul: every backend has one for each.

#pragma once

#include <string_view>
#include <vector>

#include "kernels/kernel.h"

namespace gemmd::kernels {

// In Op's order, after matmul. Each is a family of its own; with the prefix "cpu" the first is
// "cpu_quantize".
std::vector<KernelInfo> OtherKernels(std::string_view prefix);

}  // namespace gemmd::kernels
