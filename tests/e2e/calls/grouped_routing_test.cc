// Experts behind a real daemon: one plan for every routing, groups told in any way, matrices in one
// tensor or apart. Operands are small integers, so that every result is known to the last bit.

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/types.pb.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using client::DType;
using client::GroupLayout;
using client::OpList;
using client::ScaleGranularity;
using client::Tensor;
using ::testing::HasSubstr;

constexpr int64_t kExperts = 8;
constexpr int64_t kRows = 160;
constexpr int64_t kN = 256;
constexpr int64_t kK = 256;
constexpr float kPoison = -7;

std::string BytesOf(const std::vector<int32_t>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 4);
}

// -1, 0 or 1 as E4M3.
std::string Signs(int64_t count, std::mt19937& random, std::vector<int8_t>& values) {
  constexpr std::array<char, 3> kCodes = {'\xb8', '\x00', '\x38'};
  std::string codes;
  for (int64_t i = 0; i < count; ++i) {
    const int8_t value = static_cast<int8_t>(random() % 3) - 1;
    values.push_back(value);
    codes.push_back(kCodes[value + 1]);
  }
  return codes;
}

uint16_t Bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>(bits >> 16);
}

// How many rows each expert has: even, by few of them, all with one, none at all.
std::vector<int32_t> Routing(std::mt19937& random) {
  std::vector<int32_t> rows(kExperts, 0);
  const uint32_t kind = random() % 5;
  const auto left = static_cast<int32_t>(random() % (kRows + 1));
  if (kind == 0) {
    rows[random() % kExperts] = left;
  } else if (kind <= 3) {
    const uint32_t among = kind == 3 ? 2 : kExperts;
    for (int32_t i = 0; i < left; ++i) ++rows[random() % among * (kExperts / among)];
  }
  return rows;
}

class GroupedRoutingTest : public E2eTest {
 protected:
  GroupedRoutingTest() {
    std::vector<int8_t> a, b;
    Must(a_.Upload(Signs(kRows * kK, random_, a)));
    Must(a_scales_.Upload(Floats(std::vector<float>(kRows * kK / 128, 1))));
    const std::string matrices = Signs(kExperts * kN * kK, random_, b);
    Must(b_.Upload(matrices));
    std::vector<float> scales;
    for (int64_t e = 0; e < kExperts; ++e) {
      scales.insert(scales.end(), kN / 128 * kK / 128, static_cast<float>(1 << e % 3));
    }
    Must(b_scales_.Upload(Floats(scales)));
    for (int64_t e = 0; e < kExperts; ++e) {
      client::Buffer matrix = MakeBuffer(session_, {kN, kK}, DType::kE4M3);
      Must(matrix.Upload(matrices.substr(e * kN * kK, kN * kK)));
      if (e % 2 == 1) matrix = Published(matrix, "expert");
      apart_.push_back(std::move(matrix));
    }
    Expect(a, b);
  }

  // The same memory, as any session of the tenant finds it.
  client::Buffer Published(client::Buffer& matrix, const std::string& prefix) {
    const std::string name = prefix + std::to_string(apart_.size());
    EXPECT_TRUE(session_.Publish(matrix, name).ok());
    return Must(session_.Find(name));
  }

  void Expect(const std::vector<int8_t>& a, const std::vector<int8_t>& b) {
    expected_.resize(kExperts * kRows * kN);
    for (int64_t e = 0; e < kExperts; ++e) {
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t n = 0; n < kN; ++n) {
          const int8_t* x = &a[row * kK];
          const int8_t* y = &b[(e * kN + n) * kK];
          const int sum = std::inner_product(x, x + kK, y, 0);
          expected_[(e * kRows + row) * kN + n] = Bf16(static_cast<float>(sum << e % 3));
        }
      }
    }
  }

  client::Operand Scaled(const Tensor& values, ScaleGranularity granularity, const Tensor& scales) {
    return {values, granularity, scales};
  }

  // Told by `layout`, with the experts' matrices in one tensor or each by itself.
  client::GroupedMatmul Op(bool apart, const Tensor& groups, const Tensor& d) {
    client::GroupedMatmul op{
        .a = Scaled(a_.tensor(), ScaleGranularity::kBlock1x128,
                    Tensor(a_scales_.id(), DType::kF32, {kRows, kK / 128}, {1, kRows}, 0)),
        .groups = groups};
    op.d = d;
    const Tensor scales = b_scales_.tensor();
    if (!apart) op.b = Scaled(b_.tensor(), ScaleGranularity::kBlock128x128, scales);
    for (int64_t e = 0; apart && e < kExperts; ++e) {
      op.weights.push_back(
          Scaled(apart_[e].tensor(), ScaleGranularity::kBlock128x128, scales.At(e)));
    }
    return op;
  }

  // Experts' rows one behind the other from `first` on; all others poison.
  std::string Wanted(const std::vector<int32_t>& rows, int64_t first) const {
    std::vector<uint16_t> d(kRows * kN, Bf16(kPoison));
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto begin = expected_.begin() + (e * kRows + first) * kN;
      std::copy(begin, begin + rows[e] * kN, d.begin() + first * kN);
      first += rows[e];
    }
    return std::string(reinterpret_cast<const char*>(d.data()), d.size() * 2);
  }

  std::mt19937 random_{1};
  client::Buffer a_ = MakeBuffer(session_, {kRows, kK}, DType::kE4M3);
  client::Buffer a_scales_ = MakeBuffer(session_, {kRows * kK / 128});
  client::Buffer b_ = MakeBuffer(session_, {kExperts, kN, kK}, DType::kE4M3);
  client::Buffer b_scales_ = MakeBuffer(session_, {kExperts, kN / 128, kK / 128});
  client::Buffer numbers_ = MakeBuffer(session_, {kExperts + 1}, DType::kI32);
  client::Buffer d_ = MakeBuffer(session_, {kRows, kN}, DType::kBF16);
  std::vector<client::Buffer> apart_;
  std::vector<uint16_t> expected_;  // BF16 of [expert, row, n]
};

// Offsets from the caller, a poisoned result, the product, and what became of it.
OpList Step(const client::GroupedMatmul& op) {
  static const std::string* const zeros = new std::string(4 * (kExperts + 1), '\0');
  OpList ops;
  ops.Add(client::Write{op.groups, *zeros})
      .Add(client::Fill{op.d, kPoison})
      .Add(op)
      .Add(client::Read{op.d});
  return ops;
}

std::vector<int32_t> OffsetsOf(const std::vector<int32_t>& rows, int32_t first) {
  std::vector<int32_t> offsets = {first};
  for (const int32_t count : rows) offsets.push_back(offsets.back() + count);
  return offsets;
}

TEST_F(GroupedRoutingTest, OnePlanServesEveryRouting) {
  constexpr int kRoutings = 500;
  for (const bool apart : {false, true}) {
    client::Plan plan = Must(session_.CreatePlan(Step(Op(apart, numbers_.tensor(), d_.tensor()))));
    const std::string kernel = plan.info().steps(2).kernel();
    EXPECT_THAT(kernel, HasSubstr("grouped"));
    const Samples before = Scrape(daemon_.metrics_address());
    for (int i = 0; i < kRoutings; ++i) {
      const std::vector<int32_t> rows = Routing(random_);
      const int32_t all = std::accumulate(rows.begin(), rows.end(), 0);
      const auto first = static_cast<int32_t>(random_() % (kRows - all + 1));
      const std::string numbers = BytesOf(OffsetsOf(rows, first));
      const client::Result result = Must(plan.Run({.inputs = {numbers}}));
      ASSERT_TRUE(result.output(0) == Wanted(rows, first)) << "routing " << i << " apart " << apart;
      ASSERT_EQ(result.report().ops(2).kernel(), kernel);
    }
    // Not one was planned again, and a GPU's stream launched them without waiting for one, from the
    // third on by the one graph.
    const Samples after = Scrape(daemon_.metrics_address());
    const auto grown = [&](const char* name, const char* label) {
      return Sum(after, name, label) - Sum(before, name, label);
    };
    EXPECT_EQ(grown("gemmd_plan_runs_total", ""), kRoutings);
    EXPECT_EQ(grown("gemmd_launches_total", ""), kRoutings);
    EXPECT_EQ(grown("gemmd_launches_total", "capture_failed"), 0);
    if (TestDevice().rfind("cuda:", 0) == 0) {
      EXPECT_GE(grown("gemmd_launches_total", "way=\"graph\""), kRoutings - 2);
    }
  }
}

// The fronts, twenty times each: the experts' rows are the same bits.
TEST_F(GroupedRoutingTest, FrontsAgreeBitForBit) {
  const std::vector<int32_t> rows = {3, 0, 70, 1, 0, 64, 9, 13};  // all of A
  const std::vector<int32_t> offsets = OffsetsOf(rows, 0);
  std::vector<int32_t> ids;
  for (int32_t e = 0; e < kExperts; ++e) ids.insert(ids.end(), rows[e], e);
  const std::vector<int32_t> ends(offsets.begin() + 1, offsets.end());
  const std::string wanted = Wanted(rows, 0);
  for (const auto& [layout, numbers] : {std::pair(GroupLayout::kOffsets, offsets),
                                        {GroupLayout::kRowIds, ids},
                                        {GroupLayout::kEnds, ends}}) {
    client::Buffer told = MakeBuffer(session_, {static_cast<int64_t>(numbers.size())}, DType::kI32);
    Must(told.Upload(BytesOf(numbers)));
    for (const bool apart : {false, true}) {
      client::GroupedMatmul op = Op(apart, told.tensor(), d_.tensor());
      op.layout = layout;
      OpList ops;
      ops.Add(client::Fill{op.d, kPoison}).Add(op).Add(client::Read{op.d});
      for (int run = 0; run < 20; ++run) {
        ASSERT_TRUE(Must(session_.Execute(ops)).output(0) == wanted)
            << static_cast<int>(layout) << " apart " << apart << " run " << run;
      }
    }
  }
}

// Counts have an item of A for each group.
TEST_F(GroupedRoutingTest, CountsAgreeWithTheOtherFronts) {
  constexpr int64_t kMost = 20;
  const std::vector<int32_t> rows = {3, 0, 20, 1, 0, 14, 9, 13};
  client::Buffer d = MakeBuffer(session_, {kExperts, kMost, kN}, DType::kBF16);
  client::Buffer told = MakeBuffer(session_, {kExperts}, DType::kI32);
  Must(told.Upload(BytesOf(rows)));
  for (const bool apart : {false, true}) {
    client::GroupedMatmul op = Op(apart, told.tensor(), d.tensor());
    op.layout = GroupLayout::kCounts;
    op.a.values = Tensor(a_.id(), DType::kE4M3, {kExperts, kMost, kK});
    op.a.scales = Tensor(a_scales_.id(), DType::kF32, {kExperts, kMost, kK / 128},
                         {kMost * kK / 128, 1, kMost}, 0);
    OpList ops;
    ops.Add(client::Fill{op.d, kPoison}).Add(op).Add(client::Read{op.d});
    for (int run = 0; run < 20; ++run) {
      const client::Result result = Must(session_.Execute(ops));
      const absl::Span<const uint16_t> values = result.Output<uint16_t>(0);
      for (int64_t i = 0; i < kExperts * kMost; ++i) {
        const int64_t e = i / kMost;
        const bool mine = i % kMost < rows[e];
        for (int64_t n = 0; n < kN; ++n) {
          ASSERT_EQ(values[i * kN + n], mine ? expected_[(e * kRows + i) * kN + n] : Bf16(kPoison))
              << "row " << i << " column " << n << " apart " << apart << " run " << run;
        }
      }
    }
  }
}

// Two plans of the same experts in another order, run side by side.
TEST_F(GroupedRoutingTest, PlansOfOtherTablesRunSideBySide) {
  const auto work = [&](bool turned, int seed) {
    client::Buffer numbers = MakeBuffer(session_, {kExperts + 1}, DType::kI32);
    client::Buffer d = MakeBuffer(session_, {kRows, kN}, DType::kBF16);
    client::GroupedMatmul op = Op(true, numbers.tensor(), d.tensor());
    if (turned) std::reverse(op.weights.begin(), op.weights.end());
    client::Plan plan = Must(session_.CreatePlan(Step(op)));
    std::mt19937 random(seed);
    for (int i = 0; i < 100; ++i) {
      std::vector<int32_t> rows = Routing(random);
      const client::Result result = Must(plan.Run({.inputs = {BytesOf(OffsetsOf(rows, 0))}}));
      std::vector<uint16_t> wanted(kRows * kN, Bf16(kPoison));
      int64_t at = 0;
      for (int64_t g = 0; g < kExperts; ++g) {
        const int64_t e = turned ? kExperts - 1 - g : g;
        const auto begin = expected_.begin() + (e * kRows + at) * kN;
        std::copy(begin, begin + rows[g] * kN, wanted.begin() + at * kN);
        at += rows[g];
      }
      const absl::Span<const uint16_t> values = result.Output<uint16_t>(0);
      ASSERT_TRUE(std::equal(values.begin(), values.end(), wanted.begin(), wanted.end()))
          << "run " << i << " turned " << turned;
    }
  };
  std::thread other(work, true, 2);
  work(false, 3);
  other.join();
}

// A routing that cannot be is told, writes nothing, and the plan serves the next one.
TEST_F(GroupedRoutingTest, ABadRoutingAmongGoodOnes) {
  client::Plan plan = Must(session_.CreatePlan(Step(Op(true, numbers_.tensor(), d_.tensor()))));
  const std::vector<int32_t> good(kExperts, kRows / kExperts);
  for (int i = 0; i < 10; ++i) {
    std::vector<int32_t> offsets = OffsetsOf(good, 0);
    offsets[kExperts] = kRows + 1 + i;
    const absl::Status bad = plan.Run({.inputs = {BytesOf(offsets)}}).status();
    EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(bad.message()), HasSubstr("groups[8]="));
    const client::Result result = Must(plan.Run({.inputs = {BytesOf(OffsetsOf(good, 0))}}));
    EXPECT_TRUE(result.output(0) == Wanted(good, 0));
  }
}

TEST_F(GroupedRoutingTest, ExplainTellsOfGroupedMatmuls) {
  v1::GroupedMatmulProblem problem;
  problem.set_groups(8);
  problem.set_m(512);
  problem.set_n(4096);
  problem.set_k(7168);
  problem.set_operand_dtype(v1::DTYPE_E4M3);
  problem.set_output_dtype(v1::DTYPE_BF16);
  problem.set_a_granularity(v1::SCALE_GRANULARITY_BLOCK_1X128);
  problem.set_b_granularity(v1::SCALE_GRANULARITY_BLOCK_128X128);
  for (const bool apart : {false, true}) {
    problem.set_weights_apart(apart);
    const v1::ExplainResponse answer = Must(client_.Explain(problem));
    ASSERT_GE(answer.candidates_size(), 1);
    EXPECT_TRUE(answer.candidates(0).chosen());
    EXPECT_THAT(answer.candidates(0).kernel(), HasSubstr("grouped"));
    EXPECT_GT(answer.candidates(0).modelled_seconds(), 0);
    EXPECT_THAT(answer.problem(), HasSubstr("groups=8 offsets m=512 n=4096 k=7168"));
  }
  problem.set_groups(513);
  const absl::Status refused = client_.Explain(problem).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("groups=513 is not 1 to 512"));
}

}  // namespace
}  // namespace gemmd::e2e
