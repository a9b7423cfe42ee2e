// Programmatic dependent launch: PTX ISA 9.7.13.13, griddepcontrol. Both do nothing in a kernel
// that was launched the ordinary way.

#pragma once

namespace gemmd::kernels::cuda::ptx {

// Until the kernels before this one have finished and their writes are visible.
__device__ __forceinline__ void GridDependencyWait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the kernel behind this one start its prologue.
__device__ __forceinline__ void GridDependencyLaunch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace gemmd::kernels::cuda::ptx
