// The CPU's matmul kernels: one row each in kMatmulKernels (matmul.cc), one file each behind it.

#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/fault_sink.h"
#include "kernels/cpu/matmul/model.h"
#include "kernels/cpu/run_watch.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/workers.h"

namespace gemmd::kernels::cpu {

// What one run of any op works with.
struct RunContext {
  const Bindings& bindings;
  Workers& workers;
  Scratch& scratch;
  RunWatch* watch = nullptr;    // null: nothing stops it
  FaultSink* faults = nullptr;  // null: what is wrong with numbers that it reads is not told

  // Whether to leave the rest of the op undone. To be asked between pieces of some milliseconds.
  bool Stopped() const { return watch != nullptr && watch->Stopped(); }
  // The same before item `index` of a batch. Of small items only every eighth asks.
  bool StoppedBefore(int64_t index, double elements_each) const {
    constexpr double kSmall = 1 << 15;
    return index > 0 && (elements_each > kSmall || index % 8 == 0) && Stopped();
  }
  // Workers::For that gives up between pieces of `grain` once the run is stopped.
  void For(int64_t count, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) const {
    if (count <= grain || watch == nullptr) return workers.For(count, grain, body);
    workers.For(count, grain, [&](int64_t begin, int64_t end) {
      for (; begin < end && !watch->Stopped(); begin += grain) {
        body(begin, std::min(begin + grain, end));
      }
    });
  }
};

struct MatmulRun {
  const MatmulOp& op;
  const MatmulProblem& problem;
  RunContext context;

  // Neither a nor b is read: k = 0 or alpha = 0.
  bool product_is_zero() const { return problem.k == 0 || op.alpha == 0; }
};

struct MatmulKernel {
  std::string_view name;
  std::string_view family;
  std::string_view description;
  // Empty when the kernel serves the problem; else "k=70 is ...", one cause.
  std::string (*why_not)(const MatmulProblem& problem);
  double (*seconds)(const MatmulProblem& problem, const Machine& machine);
  void (*run)(const MatmulRun& run);
};

absl::Span<const MatmulKernel> MatmulKernels();

// matmul_blas.cc: OpenBLAS on the operands where they lie.
std::string BlasWhyNot(const MatmulProblem& problem);
double BlasSeconds(const MatmulProblem& problem, const Machine& machine);
void RunBlas(const MatmulRun& run);

// matmul_panel.cc: cache-sized panels converted to FP32, accumulated by OpenBLAS.
std::string PanelWhyNot(const MatmulProblem& problem);
double PanelSeconds(const MatmulProblem& problem, const Machine& machine);
void RunPanel(const MatmulRun& run);

// matmul_int8.cc: INT8 products summed exactly.
std::string Int8WhyNot(const MatmulProblem& problem);
double Int8Seconds(const MatmulProblem& problem, const Machine& machine);
void RunInt8(const MatmulRun& run);

// matmul_dot.cc: dot products against few rows of a, b read once and never stored as FP32.
std::string DotWhyNot(const MatmulProblem& problem);
double DotSeconds(const MatmulProblem& problem, const Machine& machine);
void RunDot(const MatmulRun& run);

}  // namespace gemmd::kernels::cpu
