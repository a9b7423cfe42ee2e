// A word of host memory that a stream sets behind the work queued before: what tells another
// process, its host or its stream, that a program has run, without a thread of ours in between.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace gemmd::kernels::cuda {

// Whether the driver has what it takes. Thread-safe; asks once.
bool CanSignal();

// Queues the write of `value` to `word`, 4-byte aligned memory that the device addresses.
// Everything that the stream did before is visible, on the host too, to whoever sees it.
absl::Status QueueSignal(cudaStream_t stream, std::byte* word, uint32_t value);

}  // namespace gemmd::kernels::cuda
