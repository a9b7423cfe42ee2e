// The timer that reads the device's own profile of each kernel, through CUPTI's activity records.
// CUPTI is loaded at run time; cupti.h gives types alone.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/bench/cuda/timer.h"
#include "kernels/bench/kernel_spans.h"

namespace gemmd::kernels::bench {

// Loads CUPTI and starts recording kernels; to be called once a process, before the first CUDA
// call, so that the context is made under CUPTI's eyes. `library_dir` is searched first; empty for
// the usual places alone. UNIMPLEMENTED when there is no CUPTI or it refuses.
absl::Status StartCupti(const std::string& library_dir);

// After StartCupti succeeded.
std::unique_ptr<Timer> MakeCuptiTimer(const Flush& flush, cudaStream_t stream);

// After StartCupti succeeded: the kernels of the whole process that are through since the last call
// and the last timing. UNIMPLEMENTED when CUPTI refuses, or was never started.
absl::StatusOr<std::vector<KernelSpan>> TakeKernelSpans();

}  // namespace gemmd::kernels::bench
