// Is D what it should be? Recomputes D = activation(alpha A B^T + beta C + bias) in float64 on the
// operands as the server stored them, so that what is judged is the multiplication and not the
// quantisation.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "client/cli/files/dtype.h"
#include "client/cli/numerics/activation.h"
#include "client/cli/numerics/operand.h"

namespace gemmd::cli {

// Dense row-major elements, owned by someone else.
struct HostTensor {
  files::DType dtype = files::DType::kF32;
  const std::byte* data = nullptr;
};

struct VerifyProblem {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  HostOperand a;                   // [batch, m, k]
  HostOperand b;                   // [batch, n, k]
  HostTensor d;                    // [batch, m, n]
  std::optional<HostTensor> c;     // [batch, m, n]
  std::optional<HostTensor> bias;  // [n]
  double alpha = 1;
  double beta = 0;
  Activation activation = Activation::kNone;
};

struct VerifyOptions {
  // Multiply-adds to spend. A problem that needs more is checked on a random sample of D's rows.
  double max_macs = 8.6e9;  // 2048^3: 2-4 s on two cores
  int threads = 0;          // 0: the cores this process may use
  uint64_t seed = 0;        // of the sample; 0 draws one
};

struct VerifyReport {
  double relative_error = 0;  // ||D - ref|| / ||ref||, Frobenius, over the finite elements checked
  double max_abs_error = 0;
  double bound = 0;  // what relative_error must not pass
  int64_t nonfinite_wrong =
      0;  // elements where one of D and ref (in D's type) is NaN or infinite and the other is not
  int64_t nonfinite_right = 0;  // elements where both are
  int64_t rows_checked = 0;
  int64_t rows_total = 0;  // batch * m
  bool ok = false;
};

// The stated bound per type. FP32 results of FP8 operands get 1e-3: tensor cores add FP8 products
// with about 14 bits.
double RelativeErrorBound(files::DType operand, files::DType result);

VerifyReport Verify(const VerifyProblem& problem, const VerifyOptions& options = {});

}  // namespace gemmd::cli
