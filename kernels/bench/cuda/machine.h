// Machine: the GPU of a run, with what every measurement on it shares.

#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/bench/cuda/timer.h"
#include "kernels/bench/options.h"
#include "kernels/cuda/matmul/cublaslt/cublaslt.h"
#include "kernels/cuda/matmul/cublaslt/cublaslt_family.h"
#include "kernels/cuda/sm90/gemm.h"

namespace gemmd::kernels::bench {

// Destroys the stream after what uses it.
struct Machine {
  Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  cuda::DeviceTraits traits;
  std::string driver;  // "580.159.04", or the CUDA version it serves where that is not told
  cudaStream_t stream = nullptr;
  Flush flush;
  std::unique_ptr<Timer> timer;
  std::optional<cuda::CublasLt> cublaslt;
  std::optional<cuda::CublasLtFamily> peers;  // of it
  std::string cublaslt_text;                  // its version, or why there is none
  std::string timer_text;                     // the method, and why not CUPTI
};

// UNIMPLEMENTED when there is no GPU that these kernels run on; the message names what is needed.
absl::StatusOr<std::unique_ptr<Machine>> OpenMachine(const Options& options);

// The first lines of a file of figures, up to the list's "[": GPU, driver, day, `commit` and timer.
std::string FiguresHead(const Machine& machine, const std::string& commit);

// Bytes read and written a second, in GB/s, by a copy of 512 MiB.
absl::StatusOr<double> MeasureCopy(Machine& machine, int repeats);

}  // namespace gemmd::kernels::bench
