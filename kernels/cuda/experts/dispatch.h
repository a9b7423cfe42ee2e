// A RouteOp and the QuantizeOp behind it that gathers by its rows, from a token's side: each token
// is read and quantised once, and its codes go to the rows of all its choices. Of few choices one
// kernel routes as well, since a token's places are counts that each CTA takes for itself.
//
// Every number and code is what the two ops leave behind one another.

#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/ops/quantize.h"

namespace gemmd::kernels::cuda {

struct DispatchArgs {
  RouteArgs route;
  QuantizeArgs quantize;  // whose `from` is the route's rows
  // Its kernel routes, too, which may be of up to kMostRoutedChoices; else RouteArgs' kernels run
  // in front of it.
  bool routes = false;
};

// Whether it serves the two: dense rows at multiples of 16 bytes and of 16 elements, E4M3 with
// scales of 1x128, and no more choices of a token than kMostDispatchChoices.
inline constexpr int kMostDispatchChoices = 32;
bool Dispatches(const DispatchArgs& args);

inline constexpr int64_t kMostRoutedChoices = 4096;

cudaError_t LaunchDispatch(const DispatchArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
