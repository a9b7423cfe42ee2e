#include "kernels/program_cache.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace gemmd::kernels {
namespace {

class Nothing final : public Program {
 public:
  absl::Span<const Step> steps() const override { return {}; }
  double estimated_seconds() const override { return 0; }
};

TensorRef Matrix(int slot, int64_t rows, int64_t cols) {
  TensorRef tensor = {.slot = slot, .dtype = DType::kBF16, .shape = MakeDims({rows, cols})};
  tensor.strides = RowMajorStrides(tensor.shape);
  return tensor;
}

MatmulOp Matmul(int64_t m) {
  return {.a = {Matrix(0, m, 64)}, .b = {Matrix(1, 32, 64)}, .d = Matrix(2, m, 32)};
}

class ProgramCacheTest : public testing::Test {
 protected:
  std::shared_ptr<const Program> Get(std::vector<Op> ops) {
    const auto program = cache_.Get(ops, [&]() -> ProgramCache::ProgramOr {
      ++compiled_;
      return std::make_shared<Nothing>();
    });
    return program.ok() ? *program : nullptr;
  }
  ProgramCache cache_{3, 16};
  int compiled_ = 0;
};

TEST_F(ProgramCacheTest, TheSameOpsAreCompiledOnce) {
  const auto first = Get({Matmul(8), CopyOp{Matrix(2, 8, 32), Matrix(3, 8, 32)}});
  EXPECT_EQ(Get({Matmul(8), CopyOp{Matrix(2, 8, 32), Matrix(3, 8, 32)}}), first);
  EXPECT_EQ(compiled_, 1);
}

// One op for each field that may differ: no two share a key.
TEST_F(ProgramCacheTest, EveryFieldCounts) {
  std::vector<Op> ops;
  ops.push_back(Matmul(8));
  ops.push_back(Matmul(9));
  const auto changed = [&](auto change) {
    MatmulOp op = Matmul(8);
    change(op);
    ops.push_back(op);
  };
  changed([](MatmulOp& op) { op.a.values.slot = 5; });
  changed([](MatmulOp& op) { op.a.values.offset_bytes = 2; });
  changed([](MatmulOp& op) { op.a.values.dtype = DType::kF16; });
  changed([](MatmulOp& op) { op.a.values.strides[0] = 128; });
  changed([](MatmulOp& op) { op.a.granularity = ScaleGranularity::kPerRow; });
  changed([](MatmulOp& op) { op.a.scales = Matrix(3, 8, 1); });
  changed([](MatmulOp& op) { op.b.scales = Matrix(3, 8, 1); });
  changed([](MatmulOp& op) { op.c = op.d; });
  changed([](MatmulOp& op) { op.bias = op.d; });
  changed([](MatmulOp& op) { op.alpha = 2; });
  changed([](MatmulOp& op) { op.beta = 1; });
  changed([](MatmulOp& op) { op.beta = -0.0f; });
  changed([](MatmulOp& op) { op.activation = Activation::kRelu; });
  changed([](MatmulOp& op) { op.kernel = "one"; });
  changed([](MatmulOp& op) { op.kernel = "two"; });
  const TensorRef x = Matrix(0, 8, 64);
  const TensorRef y = Matrix(1, 8, 64);
  ops.push_back(CopyOp{x, y});
  ops.push_back(ConvertOp{x, y});
  ops.push_back(FillOp{x, 0.0});
  ops.push_back(FillOp{x, -0.0});
  ops.push_back(WriteOp{x, 0});
  ops.push_back(WriteOp{x, 1});
  ops.push_back(ReadOp{x, 0});
  ops.push_back(ReadOp{x, 1});
  ops.push_back(QuantizeOp{x, y, y, ScaleGranularity::kBlock1x128});
  ops.push_back(QuantizeOp{x, y, y, ScaleGranularity::kPerTensor});
  ops.push_back(GatedOp{.src = x, .dst = y});
  ops.push_back(GatedOp{.src = x, .dst = y, .scales = y});
  ops.push_back(GatedOp{.src = x, .dst = y, .activation = Activation::kGeluErf});
  ops.push_back(GatedOp{.src = x, .dst = y, .period = 1});
  ops.push_back(GatedOp{.src = x, .dst = y, .alpha = 2});
  ops.push_back(GatedOp{.src = x, .dst = y, .limit = 7});
  ops.push_back(GatedOp{.src = x, .dst = y, .up_offset = 1});
  ops.push_back(GatedOp{.src = x, .dst = y, .alone = true});
  ops.push_back(QuantizeOp{x, y, y, ScaleGranularity::kPerRow, y});
  const auto grouped = [&](auto change) {
    GroupedMatmulOp op{.a = {x}, .b = {y}, .groups = x, .d = y};
    change(op);
    ops.push_back(op);
  };
  grouped([](GroupedMatmulOp&) {});
  grouped([](GroupedMatmulOp& op) { op.layout = GroupLayout::kEnds; });
  grouped([](GroupedMatmulOp& op) { op.alignment = 2; });
  grouped([&](GroupedMatmulOp& op) { op.d_scales = x; });
  grouped([](GroupedMatmulOp& op) { op.gate = Gate{}; });
  grouped([](GroupedMatmulOp& op) { op.gate = Gate{.period = 1}; });
  grouped([](GroupedMatmulOp& op) { op.gate = Gate{.limit = 1}; });
  grouped([](GroupedMatmulOp& op) { op.gate = Gate{.alone = true}; });
  grouped([&](GroupedMatmulOp& op) { op.bias = x; });
  grouped([](GroupedMatmulOp& op) { op.alpha = 2; });
  grouped([](GroupedMatmulOp& op) { op.activation = Activation::kRelu; });
  grouped([](GroupedMatmulOp& op) { op.expected_rows = 1; });
  grouped([](GroupedMatmulOp& op) { op.kernel = "one"; });
  grouped([&](GroupedMatmulOp& op) { op.table = {{x}}; });
  grouped([&](GroupedMatmulOp& op) { op.table = {{y}}; });
  grouped([&](GroupedMatmulOp& op) { op.table = {{x}, {y}}; });
  grouped([&](GroupedMatmulOp& op) { op.table = {{x, ScaleGranularity::kPerRow, y}}; });
  const auto choose = [&](auto change) {
    ChooseOp op{.logits = x, .experts = y, .weights = y};
    change(op);
    ops.push_back(op);
  };
  choose([](ChooseOp&) {});
  choose([&](ChooseOp& op) { op.bias = x; });
  choose([](ChooseOp& op) { op.scores = RouterScores::kSigmoid; });
  choose([](ChooseOp& op) { op.renormalize = true; });
  choose([](ChooseOp& op) { op.scale = 2; });
  choose([](ChooseOp& op) { op.groups = 2; });
  choose([](ChooseOp& op) { op.top_groups = 2; });
  choose([](ChooseOp& op) { op.group_score = GroupScore::kTop2Sum; });
  ops.push_back(RouteOp{x, y, y, y});
  ops.push_back(RouteOp{x, x, y, y});
  ops.push_back(CombineOp{x, y, y, y});
  ops.push_back(CombineOp{x, x, y, y});
  ops.push_back(NormalizeOp{.src = x, .dst = y});
  ops.push_back(NormalizeOp{.src = y, .dst = x});
  ops.push_back(NormalizeOp{.src = x, .addend = x, .dst = y});
  ops.push_back(NormalizeOp{.src = x, .addend = y, .dst = y});
  ops.push_back(NormalizeOp{.src = x, .sum = x, .dst = y});
  ops.push_back(NormalizeOp{.src = x, .addend = x, .sum = x, .dst = y});
  ops.push_back(NormalizeOp{.src = x, .dst = y, .scales = x});
  ops.push_back(NormalizeOp{.src = x, .dst = y, .weight = x});
  ops.push_back(NormalizeOp{.src = x, .dst = y, .bias = x});
  ops.push_back(NormalizeOp{.src = x, .dst = y, .weight = x, .bias = x});
  ops.push_back(NormalizeOp{.src = x, .dst = y, .epsilon = 1e-6f});
  ops.push_back(NormalizeOp{.src = x, .dst = y, .centered = true});
  for (size_t i = 0; i < ops.size(); ++i) {
    for (size_t j = 0; j < ops.size(); ++j) {
      EXPECT_EQ(KeyOf({ops[i]}) == KeyOf({ops[j]}), i == j) << i << " and " << j;
    }
  }
}

TEST_F(ProgramCacheTest, WhatWasUsedLongestAgoIsForgotten) {
  Get({Matmul(1)});
  Get({Matmul(2)});
  Get({Matmul(3)});
  Get({Matmul(1)});
  Get({Matmul(4)});  // in place of 2
  EXPECT_EQ(compiled_, 4);
  Get({Matmul(1)});
  Get({Matmul(3)});
  EXPECT_EQ(compiled_, 4);
  Get({Matmul(2)});
  EXPECT_EQ(compiled_, 5);
  EXPECT_EQ(cache_.size(), 3u);
}

TEST_F(ProgramCacheTest, LongProgramsAreNotKept) {
  Get(std::vector<Op>(5, Matmul(1)));
  EXPECT_EQ(cache_.size(), 0u);
  Get(std::vector<Op>(4, Matmul(1)));
  EXPECT_EQ(cache_.size(), 1u);
}

TEST_F(ProgramCacheTest, TablesOfMatricesCount) {
  GroupedMatmulOp op{.a = {Matrix(0, 8, 64)}, .groups = Matrix(1, 1, 1), .d = Matrix(2, 8, 64)};
  op.table.assign(16, {Matrix(3, 64, 64)});
  Get({op});
  EXPECT_EQ(cache_.size(), 0u);
  op.table.resize(12);
  Get({op});
  EXPECT_EQ(cache_.size(), 1u);
  op.table[7].values.slot = 4;
  Get({op});
  EXPECT_EQ(cache_.size(), 2u);
  EXPECT_EQ(compiled_, 3);
}

TEST_F(ProgramCacheTest, ErrorsAreNotKept) {
  const std::vector<Op> ops = {Matmul(1)};
  for (int i = 1; i <= 2; ++i) {
    const auto program = cache_.Get(ops, [&]() -> ProgramCache::ProgramOr {
      ++compiled_;
      return absl::UnimplementedError("none");
    });
    EXPECT_FALSE(program.ok());
    EXPECT_EQ(compiled_, i);
  }
  EXPECT_NE(Get(ops), nullptr);
}

}  // namespace
}  // namespace gemmd::kernels
