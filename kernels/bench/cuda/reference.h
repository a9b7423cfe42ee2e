// The oracle: A . B^T of the dequantised operands in float64 on the device, with no kernel of the
// pool involved, and what it takes to hold a result against it.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/element.h"
#include "kernels/cuda/sm90/gemm_args.h"

namespace gemmd::kernels::bench {

// Every row_step-th row of the product, `rows` of them: reference[i, :] is row i * row_step of D.
// `type` is the operands'; strides, addresses and scales of `args` count, alpha, beta, bias and
// batch do not.
struct ReferenceRows {
  double* reference;  // [rows, n], dense
  int64_t rows;
  int64_t row_step;
};
cudaError_t ComputeReference(const cuda::GemmArgs& args, cuda::ElementType type,
                             const ReferenceRows& rows, cudaStream_t stream);

// Sums over the checked elements, x of D and y of the reference. NaN in D makes them NaN.
struct ErrorSums {
  double xy = 0;
  double xx = 0;
  double yy = 0;
  double dd = 0;  // (x - y)^2
};
// Adds to *sums (device memory, zeroed by the caller). D is BF16 or FP16.
cudaError_t AddErrors(const cuda::GemmArgs& args, const ReferenceRows& rows, ErrorSums* sums,
                      cudaStream_t stream);

// Adds to *differing (device memory) the number of 16-bit words where x and y differ. With a null
// y, of words in x that are not 0xffff: poison that somebody wrote over.
cudaError_t CountDiffering(const uint16_t* x, const uint16_t* y, int64_t words,
                           unsigned long long* differing, cudaStream_t stream);

}  // namespace gemmd::kernels::bench
