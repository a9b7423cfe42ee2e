#include "kernels/cuda/run/stream_signal.h"

#include <cuda.h>

#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::cuda {
namespace {

using WriteValue = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);

// Asked for at run time: linking the driver library would keep a binary from starting where there
// is no GPU. Of version 12 it is the call that needs no option of the driver's kernel module. Null
// when the driver has none.
WriteValue FindWriteValue() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t code = cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &function,
                                                            12000, cudaEnableDefault, &found);
  if (code != cudaSuccess) {
    cudaGetLastError();  // or the thread's next check would find it
    return nullptr;
  }
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<WriteValue>(function) : nullptr;
}

WriteValue Writer() {
  static const WriteValue writer = FindWriteValue();
  return writer;
}

}  // namespace

bool CanSignal() { return Writer() != nullptr; }

absl::Status QueueSignal(cudaStream_t stream, std::byte* word, uint32_t value) {
  if (!CanSignal()) {
    return absl::UnimplementedError(
        "the driver has no cuStreamWriteValue32; it must be of CUDA 12.0 or newer");
  }
  return ToStatus(
      Writer()(stream, reinterpret_cast<CUdeviceptr>(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
      "setting a word behind a program");
}

}  // namespace gemmd::kernels::cuda
