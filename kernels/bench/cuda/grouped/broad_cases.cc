#include "kernels/bench/cuda/grouped/broad_cases.h"

#include <utility>

#include "kernels/bench/cuda/grouped/broad_draw.h"

namespace gemmd::kernels::bench {
namespace {

constexpr int64_t kAlignment = 128;      // of groups by row ids and by ends, as others have it
constexpr int64_t kDense = 8192;         // rows, n and k of the large group
constexpr double kMostElements = 8.6e9;  // of a and d with counts, whose items have a fixed size

void SetLayout(GroupLayout layout, GroupedBenchCase& c) {
  if (layout == GroupLayout::kCounts) {
    const int64_t most = *std::max_element(c.rows.begin(), c.rows.end());
    const int64_t m_max = (most + kAlignment - 1) / kAlignment * kAlignment;
    if (static_cast<double>(m_max * std::ssize(c.rows)) * static_cast<double>(c.n + c.k) >
        kMostElements) {
      return;
    }
    c.m_max = m_max;
  } else if (layout != GroupLayout::kOffsets) {
    c.alignment = kAlignment;
  }
  c.layout = layout;
}

}  // namespace

std::vector<GroupedBenchCase> BroadCases(Half half, int count, uint64_t seed) {
  const char* const suite = half == Half::kFit ? "broad-fit" : "broad-judge";
  std::vector<GroupedBenchCase> cases = {
      {.suite = suite, .rows = {kDense}, .n = kDense, .k = kDense}};
  Draw draw(half, seed);
  while (std::ssize(cases) <= count) {
    const Experts& model = draw.Model();
    const int64_t tokens = draw.Tokens(static_cast<int>(cases.size()));
    const int64_t local = model.experts / draw.Ranks(model.experts);
    const auto ids = Route(draw.AnyRouting(), tokens, model.top_k, model.experts, draw.random());
    const bool first = draw.Coin();
    GroupedBenchCase c = {.suite = suite,
                          .rows = LocalRows(ids, local),
                          .n = first ? 2 * model.inner : model.hidden,
                          .k = first ? model.hidden : model.inner};
    SetLayout(draw.AnyLayout(), c);
    c.expects = c.layout == GroupLayout::kCounts && draw.Coin();
    if (c.total_rows() > 0) cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace gemmd::kernels::bench
