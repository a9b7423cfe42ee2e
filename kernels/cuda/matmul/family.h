// MatmulFamily: kernels of one making, as the pool sees them, whether they are ours, a fallback or
// a library's. A member is known by its index. What it demands and what it takes follow from the
// MatmulProblem alone; memory comes in with Prepare.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/gated.h"
#include "kernels/kernel.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

// One matmul with its addresses and the problem that it poses.
struct MatmulArgs {
  MatmulProblem problem;
  AnyGemmArgs gemm;  // of one with a gate the product, whose d is nowhere yet
  std::optional<GatedArgs> gate;
};

// All launches of one matmul, for the memory that they were made for. May be queued any number of
// times, by several threads.
class PreparedMatmul {
 public:
  virtual ~PreparedMatmul() = default;
  // On `stream` of the current device. `overlap`: the first kernel may start under the end of
  // what is in front of it, which is a kernel.
  virtual absl::Status Launch(bool overlap, cudaStream_t stream) const = 0;
};

enum class Standing : uint8_t {
  kContends,    // taken where it is quickest
  kLastResort,  // taken where no contender serves
  kByName,      // serves whoever names it, and is nobody's choice
};

// Immutable and thread-safe.
class MatmulFamily {
 public:
  virtual ~MatmulFamily() = default;
  virtual absl::Span<const KernelInfo> members() const = 0;
  virtual Standing standing(int member) const = 0;

  // Whether they apply a gate. Of the others none sees one: the pool puts it behind them.
  virtual bool gates() const { return false; }

  // Empty when the member serves the problem; else one cause, with value, limit and remedy. Pure,
  // and the only place that says so.
  virtual std::string WhyNot(int member, const MatmulProblem& problem) const = 0;
  // Modelled, of a problem that it serves; all its launches together. Pure.
  virtual double Seconds(int member, const MatmulProblem& problem) const = 0;
  // Device memory that its launches share. Pure.
  virtual int64_t ScratchBytes(int member, const MatmulProblem& problem) const = 0;

  // `scratch`: ScratchBytes at a multiple of 256, behind kScratchFront bytes (scratch_front.h)
  // that are zero whenever no kernel runs. The device is current, and `args` pose a problem
  // that the member serves. INVALID_ARGUMENT when the addresses are not what the problem promised.
  virtual absl::StatusOr<std::unique_ptr<const PreparedMatmul>> Prepare(
      int member, const MatmulArgs& args, std::byte* scratch) const = 0;
};

}  // namespace gemmd::kernels::cuda
