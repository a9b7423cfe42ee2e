// CodeHash: which machine code a config's kernel has. Times of a tuning table are as good as long
// as the code is the one that was measured.

#pragma once

#include <string_view>

#include "kernels/cuda/sm90/gemm_config.h"

namespace gemmd::kernels::cuda {

// Sixteen hexadecimal digits over the instructions of this build's kernel (sass/machine_code.py
// tells which bits count); all splits of a config share them. Empty for a config without a kernel.
std::string_view CodeHash(const GemmConfig& config);
// Of the kernel that walks along k (stream_k.h).
std::string_view StreamCodeHash(const GemmConfig& config);

// The version of nvcc that made them: "13.0.88".
std::string_view KernelCompiler();

}  // namespace gemmd::kernels::cuda
