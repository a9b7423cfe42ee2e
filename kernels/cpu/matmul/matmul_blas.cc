#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/bound.h"
#include "kernels/cpu/matmul/epilogue.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/ops/run_op.h"
#include "kernels/text.h"

namespace gemmd::kernels::cpu {
namespace {

using absl::StrCat;

constexpr int64_t kMaxInt = std::numeric_limits<int>::max();  // blasint

std::string WhyNotOperand(const char* name, const OperandTraits& t, int64_t rows, int64_t k) {
  if (t.dtype != DType::kF32)
    return StrCat(name, " is ", Text(Name(t.dtype)), "; this kernel takes f32");
  if (t.granularity != ScaleGranularity::kNone) {
    return StrCat(name, " has scales per ", Text(Name(t.granularity)), "; this kernel takes none");
  }
  if (t.layout == Layout::kStrided) return StrCat(name, " has unit stride in no dimension");
  const int64_t line = t.layout == Layout::kKContiguous ? k : rows;
  if (t.leading_stride < line || t.leading_stride > kMaxInt) {
    return StrCat(name, " has a leading stride of ", t.leading_stride, "; OpenBLAS takes ", line,
                  " to ", kMaxInt);
  }
  return "";
}

// One batch item, as sgemm wants it.
struct Side {
  const float* data;
  int ld;
  bool k_contiguous;

  Side At(int64_t row, int64_t k) const {
    return {data + (k_contiguous ? row * ld + k : k * ld + row), ld, k_contiguous};
  }
};

Side SideOf(const Operand& operand, const OperandTraits& traits, const Bindings& bindings,
            int64_t batch) {
  const BoundMatrix matrix = BindMatrix(operand.values, bindings, batch);
  return {reinterpret_cast<const float*>(matrix.data), static_cast<int>(traits.leading_stride),
          traits.layout == Layout::kKContiguous};
}

// A call to OpenBLAS cannot be stopped, so a long problem is multiplied in blocks of this; on a
// busy machine one may take several times as long.
constexpr double kBlockSeconds = 0.02;
constexpr int64_t kDeepest = 2048;  // of a block, along k

struct Extents {
  int64_t m, n, k;
};

// About as many rows as columns: each is packed once a block.
Extents BlockOf(const MatmulProblem& p, int threads) {
  const double flops = kBlockSeconds * MachineFor(threads).sgemm_flops;
  if (2.0 * p.m * p.n * p.k <= flops) return {p.m, p.n, p.k};
  const int64_t k = std::min(p.k, kDeepest);
  const double area = std::max(1.0, flops / (2.0 * k));
  const int64_t n =
      std::min(p.n, std::max<int64_t>(std::llround(std::sqrt(area)), std::llround(area / p.m)));
  return {std::min(p.m, std::max<int64_t>(1, std::llround(area / n))), n, k};
}

// D's memory read as row-major [m, n], or as column-major when its rows are contiguous: then the
// same call with both transpositions turned round.
void MultiplyBlock(const MatmulProblem& p, const Side& a, const Side& b, const BoundMatrix& d,
                   const Extents& block, float alpha, float beta) {
  const bool row_major = p.d.layout == Layout::kKContiguous;
  cblas_sgemm(row_major ? CblasRowMajor : CblasColMajor,
              a.k_contiguous == row_major ? CblasNoTrans : CblasTrans,
              b.k_contiguous == row_major ? CblasTrans : CblasNoTrans, static_cast<int>(block.m),
              static_cast<int>(block.n), static_cast<int>(block.k), alpha, a.data, a.ld, b.data,
              b.ld, beta, reinterpret_cast<float*>(d.data), static_cast<int>(p.d.leading_stride));
}

void Multiply(const MatmulRun& run, int64_t batch, float alpha, float beta) {
  const MatmulProblem& p = run.problem;
  const Side a = SideOf(run.op.a, p.a, run.context.bindings, batch);
  const Side b = SideOf(run.op.b, p.b, run.context.bindings, batch);
  const BoundMatrix d = BindMatrix(run.op.d, run.context.bindings, batch);
  const Extents most = BlockOf(p, run.context.workers.threads());
  for (int64_t n0 = 0; n0 < p.n; n0 += most.n) {
    for (int64_t m0 = 0; m0 < p.m; m0 += most.m) {
      for (int64_t k0 = 0; k0 < p.k; k0 += most.k) {
        if (n0 + m0 + k0 > 0 && run.context.Stopped()) return;
        BoundMatrix part = d;
        part.data = d.At(m0, n0);
        MultiplyBlock(
            p, a.At(m0, k0), b.At(n0, k0), part,
            {std::min(most.m, p.m - m0), std::min(most.n, p.n - n0), std::min(most.k, p.k - k0)},
            alpha, k0 == 0 ? beta : 1.0f);
      }
    }
  }
}

// Bias and activation, in place: alpha and beta * C are in D already.
void Finish(const MatmulRun& run, int64_t batch) {
  MatmulOp rest = run.op;
  MatmulProblem problem = run.problem;
  rest.alpha = 0;
  rest.beta = 1;
  rest.c = rest.d;
  problem.has_c = true;
  StoreTile({rest, problem, run.context}, {batch, 0, problem.m, 0, problem.n},
            static_cast<const float*>(nullptr), 0);
}

bool IsInPlace(const MatmulOp& op) {
  return op.c->slot == op.d.slot && op.c->offset_bytes == op.d.offset_bytes;
}

}  // namespace

std::string BlasWhyNot(const MatmulProblem& p) {
  if (std::max({p.m, p.n, p.k}) > kMaxInt) {
    return StrCat("an extent is above ", kMaxInt, ", OpenBLAS's largest");
  }
  std::string why = WhyNotOperand("a", p.a, p.m, p.k);
  if (why.empty()) why = WhyNotOperand("b", p.b, p.n, p.k);
  if (why.empty()) why = WhyNotOperand("d", p.d, p.m, p.n);
  return why;
}

double BlasSeconds(const MatmulProblem& p, const Machine& machine) {
  double each = SgemmSeconds(machine, p.m, p.n, p.k);
  const double out = 1.0 * p.m * p.n;
  // D goes through the cache; with a long k that is nothing beside the products.
  each += 8 * out / machine.memory_bytes_per_s;
  if (p.has_bias || p.activation != Activation::kNone) each += MoveSeconds(machine, out, 8 * out);
  return p.batch * each;
}

void RunBlas(const MatmulRun& run) {
  if (run.product_is_zero()) return StoreWithoutProduct(run);
  const MatmulOp& op = run.op;
  const bool needs_finish = op.bias.has_value() || op.activation != Activation::kNone;
  // sgemm adds to what D holds, so a C of its own goes there first.
  if (run.problem.has_c && !IsInPlace(op)) RunOp(CopyOp{*op.c, op.d}, run.context);
  const float beta = run.problem.has_c ? op.beta : 0.0f;
  for (int64_t batch = 0; batch < run.problem.batch; ++batch) {
    if (run.context.StoppedBefore(batch, run.problem.flops() / run.problem.batch)) return;
    Multiply(run, batch, op.alpha, beta);
    if (needs_finish) Finish(run, batch);
  }
}

}  // namespace gemmd::kernels::cpu
