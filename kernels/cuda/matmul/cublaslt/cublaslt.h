// cuBLASLt, loaded at run time when the machine has it: the peer that gemm_bench measures against,
// and a kernel for shapes that the pool's own do not cover.
//
//   absl::StatusOr<CublasLt> lt = CublasLt::Load("");
//   absl::StatusOr<CublasLt::Plan> plan = lt->Prepare(CublasLtKind::kFp8Block, args);
//   absl::Status status = lt->Run(*plan, stream);
//
// cuBLAS is column-major. Row-major D[m,n] = A[m,k] . B[n,k]^T is its D^T[n,m] = B^T' . A^T: its
// "A" is our B, transposed, and its "B" is our A.

#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/sm90/gemm_args.h"

namespace gemmd::kernels::cuda {

enum class CublasLtKind {
  kFp8Block,       // E4M3, scales 1x128 of A and 128x128 of B; sm_90, m and n multiples of 4
  kFp8TensorWise,  // E4M3; a_scales and b_scales point to one float each; fast accumulation
  kBf16,           // a and b point to BF16, strides in elements; no scales
  kF16,            // the same of FP16
  kI8,             // INT8 without scales, and d of 32-bit integers; alpha 1 and beta 0
};
std::string_view Name(CublasLtKind kind);  // "cublaslt_block", ...

struct CublasLtApi;

// Owns a handle and a workspace on the current device. Move-only. Runs of one CublasLt share the
// workspace: queue them on one stream, or order the streams.
class CublasLt {
 public:
  static constexpr int64_t kWorkspaceBytes = 32 << 20;

  // A prepared matmul: descriptors, and the algorithm that cuBLAS's heuristic ranks first. Holds
  // the addresses it was prepared for. Must not outlive its CublasLt.
  class Plan {
   public:
    Plan(Plan&&) noexcept;
    Plan& operator=(Plan&&) noexcept;
    ~Plan();

   private:
    friend class CublasLt;
    struct Parts;
    explicit Plan(std::unique_ptr<Parts> parts);
    std::unique_ptr<Parts> parts_;
  };

  // Looks in `folder` first, unless it is empty. UNIMPLEMENTED when there is no library,
  // RESOURCE_EXHAUSTED when there is no memory for the workspace.
  static absl::StatusOr<CublasLt> Load(const std::string& folder);

  CublasLt(CublasLt&&) noexcept;
  CublasLt& operator=(CublasLt&&) noexcept;
  ~CublasLt();

  // UNIMPLEMENTED when cuBLASLt has no algorithm for this, with its own status' name, and for a
  // batch, a bias, or a ReLU, which this class does not pass on. INVALID_ARGUMENT for scales whose
  // layout the library does not take.
  absl::StatusOr<Plan> Prepare(CublasLtKind kind, const GemmArgs& args) const;

  // Queues it on `stream` of the current device. Can be captured in a graph.
  absl::Status Run(const Plan& plan, cudaStream_t stream) const;

  // 130100 for 13.1.0.
  int64_t version() const;

 private:
  explicit CublasLt(std::unique_ptr<CublasLtApi> api);
  std::unique_ptr<CublasLtApi> api_;
};

}  // namespace gemmd::kernels::cuda
