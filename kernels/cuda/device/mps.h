// Whether this process's GPU work goes through NVIDIA MPS.

#pragma once

namespace gemmd::kernels {

// By the driver's word on the GPU of that ordinal. Under MPS the contexts of several processes run
// side by side; otherwise they take turns. False when the driver does not tell.
bool RunsUnderMps(int ordinal);

}  // namespace gemmd::kernels
