// A router's choice. A token's logits are read once, since another program may write there
// meanwhile; everything after that is of copies on the stack.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/ops/columns.h"
#include "kernels/cpu/ops/run_op.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kGrainLogits = 1 << 12;  // of a thread, an exponential each
static_assert(kMaxGroups <= kColumnsAtOnce, "a token's logits are loaded at once");

// Of one token: what stands here is not NaN.
struct Candidate {
  float c;  // score + bias
  int32_t expert;
};

// The larger first, and of equal ones the first.
bool ComesBefore(const Candidate& x, const Candidate& y) {
  return x.c != y.c ? x.c > y.c : x.expert < y.expert;
}

// NaN stays NaN.
void ScoresOf(RouterScores scores, int64_t n, float* values) {
  if (scores == RouterScores::kSigmoid) {
    for (int64_t i = 0; i < n; ++i) values[i] = 1.0f / (1.0f + std::exp(-values[i]));
    return;
  }
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) largest = values[i] > largest ? values[i] : largest;
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    values[i] = values[i] == largest ? 1.0f : std::exp(values[i] - largest);
    if (!std::isnan(values[i])) sum += values[i];
  }
  for (int64_t i = 0; i < n; ++i) values[i] /= sum;
}

// NaN where the group has none to choose.
float ScoreOfGroup(GroupScore score, const float* c, int64_t size) {
  float first = std::numeric_limits<float>::quiet_NaN(), second = first;
  for (int64_t i = 0; i < size; ++i) {
    if (std::isnan(c[i])) continue;
    if (std::isnan(first) || c[i] > first) {
      second = first;
      first = c[i];
    } else if (std::isnan(second) || c[i] > second) {
      second = c[i];
    }
  }
  return score == GroupScore::kMax || std::isnan(second) ? first : first + second;
}

// Makes c NaN in groups that may not be chosen from.
void KeepTopGroups(const ChooseOp& op, int64_t experts, float* c) {
  const int64_t size = experts / op.groups;
  std::array<Candidate, kMaxGroups> groups;
  int64_t count = 0;
  std::array<bool, kMaxGroups> kept = {};
  for (int64_t g = 0; g < op.groups; ++g) {
    const float score = ScoreOfGroup(op.group_score, c + g * size, size);
    if (!std::isnan(score)) groups[count++] = {score, static_cast<int32_t>(g)};
  }
  const int64_t taken = std::min(count, op.top_groups);
  std::partial_sort(groups.begin(), groups.begin() + taken, groups.begin() + count, ComesBefore);
  for (int64_t i = 0; i < taken; ++i) kept[groups[i].expert] = true;
  for (int64_t g = 0; g < op.groups; ++g) {
    if (!kept[g]) std::fill_n(c + g * size, size, std::numeric_limits<float>::quiet_NaN());
  }
}

// Places of one op's memory.
struct Choosing {
  BoundMatrix logits;
  BoundMatrix experts;
  BoundMatrix weights;
  const float* bias = nullptr;  // null: none
  int64_t bias_stride = 0;
};

void ChooseOfToken(const ChooseOp& op, const Choosing& job, int64_t token) {
  alignas(64) std::byte dense[kColumnsAtOnce * 4];
  alignas(64) float scores[kColumnsAtOnce];
  alignas(64) float c[kColumnsAtOnce];
  const int64_t experts = job.logits.cols;
  LoadColumns(job.logits, token, 0, experts, dense, scores);
  ScoresOf(op.scores, experts, scores);
  for (int64_t e = 0; e < experts; ++e) {
    c[e] = job.bias == nullptr ? scores[e] : scores[e] + job.bias[e * job.bias_stride];
  }
  if (op.groups > 1) KeepTopGroups(op, experts, c);
  std::array<Candidate, kMaxGroups> found;
  int64_t count = 0;
  for (int64_t e = 0; e < experts; ++e) {
    if (!std::isnan(c[e])) found[count++] = {c[e], static_cast<int32_t>(e)};
  }
  const int64_t top_k = job.experts.cols;
  const int64_t taken = std::min(count, top_k);
  std::partial_sort(found.begin(), found.begin() + taken, found.begin() + count, ComesBefore);
  float sum = 0;
  for (int64_t j = 0; j < taken; ++j) sum += scores[found[j].expert];
  const float divisor = op.renormalize ? sum + 1e-20f : 1.0f;
  for (int64_t j = 0; j < top_k; ++j) {
    const int32_t expert = j < taken ? found[j].expert : -1;
    *reinterpret_cast<int32_t*>(job.experts.At(token, j)) = expert;
    *reinterpret_cast<float*>(job.weights.At(token, j)) =
        expert < 0 ? 0.0f : scores[expert] / divisor * op.scale;
  }
}

}  // namespace

void RunOp(const ChooseOp& op, const RunContext& context) {
  Choosing job{.logits = BindMatrix(op.logits, context.bindings, 0),
               .experts = BindMatrix(op.experts, context.bindings, 0),
               .weights = BindMatrix(op.weights, context.bindings, 0)};
  if (op.bias) {
    job.bias = reinterpret_cast<const float*>(Address(*op.bias, context.bindings));
    job.bias_stride = op.bias->strides[0];
  }
  const int64_t grain = std::max<int64_t>(1, kGrainLogits / job.logits.cols);
  context.For(job.logits.rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) ChooseOfToken(op, job, token);
  });
}

}  // namespace gemmd::kernels::cpu
