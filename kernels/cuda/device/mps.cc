#include "kernels/cuda/device/mps.h"

#include <cuda_runtime_api.h>

namespace gemmd::kernels {

bool RunsUnderMps(int ordinal) {
  int enabled = 0;
  if (cudaDeviceGetAttribute(&enabled, cudaDevAttrMpsEnabled, ordinal) == cudaSuccess) {
    return enabled != 0;
  }
  cudaGetLastError();  // or the thread's next check would find it
  return false;
}

}  // namespace gemmd::kernels
