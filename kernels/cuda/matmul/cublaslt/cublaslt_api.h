// The functions of cuBLASLt that gemmd calls, bound at run time; cublasLt.h gives types alone.
// Included by cublaslt.cc only.

#pragma once

#include <cublasLt.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/shared_library.h"
#include "kernels/cuda/matmul/cublaslt/cublaslt.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {

// Destroys the handle and frees the workspace, then closes the library.
struct CublasLtApi {
  explicit CublasLtApi(SharedLibrary lib) : library(std::move(lib)) {}
  CublasLtApi(const CublasLtApi&) = delete;
  CublasLtApi& operator=(const CublasLtApi&) = delete;
  ~CublasLtApi() {
    if (handle != nullptr) destroy(handle);
    cudaFree(workspace);
  }

  SharedLibrary library;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;

  absl::Status Bind() {
    for (absl::Status status :
         {library.Find("cublasLtCreate", create), library.Find("cublasLtDestroy", destroy),
          library.Find("cublasLtGetVersion", get_version),
          library.Find("cublasLtGetStatusName", status_name),
          library.Find("cublasLtMatmul", matmul),
          library.Find("cublasLtMatmulAlgoGetHeuristic", heuristic),
          library.Find("cublasLtMatmulDescCreate", desc_create),
          library.Find("cublasLtMatmulDescDestroy", desc_destroy),
          library.Find("cublasLtMatmulDescSetAttribute", desc_set),
          library.Find("cublasLtMatrixLayoutCreate", layout_create),
          library.Find("cublasLtMatrixLayoutDestroy", layout_destroy),
          library.Find("cublasLtMatmulPreferenceCreate", preference_create),
          library.Find("cublasLtMatmulPreferenceDestroy", preference_destroy),
          library.Find("cublasLtMatmulPreferenceSetAttribute", preference_set)}) {
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status ToStatus(cublasStatus_t code, std::string_view what) const {
    if (code == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    const bool refused = code == CUBLAS_STATUS_NOT_SUPPORTED ||
                         code == CUBLAS_STATUS_INVALID_VALUE || code == CUBLAS_STATUS_ARCH_MISMATCH;
    return absl::Status(refused ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInternal,
                        absl::StrCat("cublasLt: ", Text(what), ": ", status_name(code)));
  }
};

}  // namespace gemmd::kernels::cuda
