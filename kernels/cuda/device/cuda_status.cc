#include "kernels/cuda/device/cuda_status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

absl::StatusCode CodeOf(cudaError_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
    case cudaErrorLaunchOutOfResources:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorUnsupportedPtxVersion:
      return absl::StatusCode::kUnimplemented;
    default:
      return IsSticky(code) ? absl::StatusCode::kUnavailable : absl::StatusCode::kInternal;
  }
}

}  // namespace

bool IsSticky(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorContained:
    case cudaErrorMpsConnectionFailed:  // the MPS server is gone, and this process's context with
                                        // it
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsClientTerminated:
      return true;
    default:
      return false;
  }
}

absl::Status ToStatus(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return absl::OkStatus();
  return absl::Status(CodeOf(code), absl::StrCat(Text(what), ": ", cudaGetErrorName(code), ": ",
                                                 cudaGetErrorString(code)));
}

absl::Status ToStatus(CUresult code, std::string_view what) {
  if (code == CUDA_SUCCESS) return absl::OkStatus();
  const absl::StatusCode status = code == CUDA_ERROR_OUT_OF_MEMORY
                                      ? absl::StatusCode::kResourceExhausted
                                      : absl::StatusCode::kInternal;
  return absl::Status(status,
                      absl::StrCat(Text(what), ": CUDA driver error ", static_cast<int>(code)));
}

}  // namespace gemmd::kernels::cuda
