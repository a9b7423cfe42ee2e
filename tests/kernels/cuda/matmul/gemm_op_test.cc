#include "kernels/cuda/matmul/gemm_op.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/args/op_args.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/matmul/placed_args.h"
#include "kernels/cuda/matmul/problem_args.h"
#include "kernels/cuda/matmul/tma_family.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;

// m=60, n=300, k=512: 4 k blocks, 3 n blocks; row-major scales.
MatmulOp Op() {
  MatmulOp op;
  op.a = {Dense(0, DType::kE4M3, MakeDims({60, 512})), ScaleGranularity::kBlock1x128,
          Dense(1, DType::kF32, MakeDims({60, 4}))};
  op.b = {Dense(2, DType::kE4M3, MakeDims({300, 512})), ScaleGranularity::kBlock128x128,
          Dense(3, DType::kF32, MakeDims({3, 4}))};
  op.d = Dense(4, DType::kBF16, MakeDims({60, 300}));
  return op;
}

std::vector<std::byte*> Slots() {
  std::vector<std::byte*> slots;
  for (uintptr_t i = 1; i <= 8; ++i) slots.push_back(reinterpret_cast<std::byte*>(i << 20));
  return slots;
}

ScaleCopies Copies(const MatmulOp& op) { return CopiesOf(UnplacedArgs(ProblemOf(op))); }
std::string WhyNotOp(const MatmulOp& op) { return WhyNot(AllVariants()[0], ProblemOf(op)); }

std::byte* const kScratch = reinterpret_cast<std::byte*>(uintptr_t{1} << 30);

TEST(GemmOpTest, CopiesRowMajorScalesOfA) {
  const ScaleCopies copies = Copies(Op());
  EXPECT_TRUE(copies.a);
  EXPECT_FALSE(copies.b);
  EXPECT_EQ(copies.scratch_bytes, 60 * 4 * 4);
}

TEST(GemmOpTest, TakesMMajorScalesOfAAsTheyAre) {
  MatmulOp op = Op();
  op.a.scales->strides = MakeDims({1, 60});
  EXPECT_FALSE(Copies(op).a);
  op.a.scales->strides = MakeDims({1, 64});
  EXPECT_FALSE(Copies(op).a);
  op.a.scales->strides = MakeDims({1, 62});  // not 16 bytes apart
  EXPECT_TRUE(Copies(op).a);
  op.a.scales->strides = MakeDims({1, 60});
  op.a.scales->offset_bytes = 8;
  EXPECT_TRUE(Copies(op).a);
}

// [k blocks, m rounded up to 4], seen as [m, k blocks]: what our clients make, for any m.
TEST(GemmOpTest, TakesScalesOfAInPaddedColumnsForAnyM) {
  for (const int64_t m : {1, 2, 3, 4, 62, 130}) {
    for (const int64_t batch : {1, 5}) {
      const int64_t ld = (m + 3) / 4 * 4;
      MatmulOp op = Op();
      op.a.values = Dense(0, DType::kE4M3, MakeDims({batch, m, 512}));
      op.a.scales =
          TensorRef{1, 256, DType::kF32, MakeDims({batch, m, 4}), MakeDims({4 * ld, 1, ld})};
      op.d = Dense(4, DType::kBF16, MakeDims({batch, m, 300}));
      const ScaleCopies copies = Copies(op);
      EXPECT_FALSE(copies.a) << m;
      EXPECT_EQ(copies.scratch_bytes, 0) << m;
      const AnyGemmArgs any = ArgsOf(op, Slots());
      EXPECT_FALSE(CopyOfA(any, copies, nullptr).has_value()) << m;
      const GemmArgs args = GemmArgsOf(any, copies, nullptr);
      EXPECT_EQ(args.a_scales, any.a.scales.data) << m;
      EXPECT_EQ(args.a_scales_ld, ld) << m;
      EXPECT_EQ(WhyNot(AllVariants()[0], args), "") << m;
    }
  }
}

TEST(GemmOpTest, CopiesScalesOfBThatAreNotDenseAlongK) {
  MatmulOp op = Op();
  op.b.scales->strides = MakeDims({1, 3});
  const ScaleCopies copies = Copies(op);
  EXPECT_TRUE(copies.b);
  EXPECT_EQ(copies.b_offset, 1024);  // 960 bytes of a's, rounded
  EXPECT_EQ(copies.scratch_bytes, 1024 + 3 * 4 * 4);
}

TEST(GemmOpTest, CopiesKeepEveryScale) {
  MatmulOp op = Op();
  op.b.scales->strides = MakeDims({1, 3});
  const ScaleCopies copies = Copies(op);
  const AnyGemmArgs any = ArgsOf(op, Slots());
  const GemmArgs args = GemmArgsOf(any, copies, kScratch);
  const auto a = CopyOfA(any, copies, kScratch);
  const auto b = CopyOfB(any, copies, kScratch);
  ASSERT_TRUE(a.has_value() && b.has_value());
  for (int64_t row = 0; row < 60; ++row) {
    for (int64_t block = 0; block < 4; ++block) {
      EXPECT_EQ(a->src + row * a->src_row + block * a->src_k,
                any.a.scales.data + row * any.a.scales.row_stride + block * any.a.scales.k_stride);
      EXPECT_EQ(a->dst + block * a->dst_ld + row, args.a_scales + block * args.a_scales_ld + row);
    }
  }
  ASSERT_EQ(b->rows, 4);
  ASSERT_EQ(b->k_blocks, 3);
  for (int64_t n = 0; n < 3; ++n) {
    for (int64_t k = 0; k < 4; ++k) {
      EXPECT_EQ(b->src + k * b->src_row + n * b->src_k,
                any.b.scales.data + n * any.b.scales.row_stride + k * any.b.scales.k_stride);
      EXPECT_EQ(b->dst + n * b->dst_ld + k, args.b_scales + n * args.b_scales_ld + k);
    }
  }
  EXPECT_EQ(WhyNot(AllVariants()[0], args), "");
}

TEST(GemmOpTest, SharesOneCopyAmongABatch) {
  MatmulOp op = Op();
  op.a.values = Dense(0, DType::kE4M3, MakeDims({5, 60, 512}));
  op.a.scales = Dense(1, DType::kF32, MakeDims({5, 60, 4}));
  op.b.scales->strides = MakeDims({1, 3});
  op.d = Dense(4, DType::kBF16, MakeDims({5, 60, 300}));
  const ScaleCopies copies = Copies(op);
  const AnyGemmArgs any = ArgsOf(op, Slots());
  EXPECT_EQ(CopyOfA(any, copies, kScratch)->batch, 5);
  EXPECT_EQ(CopyOfB(any, copies, kScratch)->batch, 1);
  const GemmArgs args = GemmArgsOf(any, copies, kScratch);
  EXPECT_EQ(args.a_scales_batch, 240);
  EXPECT_EQ(args.b_scales_batch, 0);
  EXPECT_EQ(WhyNot(AllVariants()[0], args), "");
}

TEST(GemmOpTest, TellsKernelsThatFinishOfActivations) {
  const std::vector<std::byte*> slots = Slots();
  MatmulOp op = Op();
  EXPECT_FALSE(NeedsFinish(GemmArgsOf(ArgsOf(op, slots), Copies(op), kScratch)));
  op.activation = Activation::kRelu;
  GemmArgs args = GemmArgsOf(ArgsOf(op, slots), Copies(op), kScratch);
  EXPECT_EQ(args.activation, ActivationType::kRelu);
  EXPECT_TRUE(args.relu && NeedsFinish(args) && OnlyAdjusts(args));
  op.activation = Activation::kGeluErf;
  args = GemmArgsOf(ArgsOf(op, slots), Copies(op), kScratch);
  EXPECT_EQ(args.activation, ActivationType::kGeluErf);
  EXPECT_TRUE(NeedsFinish(args));
  EXPECT_FALSE(args.relu || OnlyAdjusts(args));
}

TEST(GemmOpTest, TheProblemTellsAllThatTheyLack) {
  EXPECT_EQ(WhyNotOp(Op()), "");
  MatmulOp op = Op();
  op.alpha = 0;
  EXPECT_THAT(WhyNotOp(op), HasSubstr("alpha is 0"));
  op = Op();
  op.bias = TensorRef{5, 0, DType::kF32, MakeDims({300}), MakeDims({2})};
  EXPECT_THAT(WhyNotOp(op), HasSubstr("stride of 2"));
  op = Op();
  op.c = TensorRef{5, 0, DType::kBF16, MakeDims({60, 300}), MakeDims({1, 60})};
  EXPECT_EQ(WhyNotOp(op), "");  // beta is 0
  op.beta = 1;
  EXPECT_THAT(WhyNotOp(op), HasSubstr("row-major c"));
  op = Op();
  op.a.values = TensorRef{0, 0, DType::kE4M3, MakeDims({5, 60, 512}), MakeDims({0, 512, 1})};
  op.a.scales = Dense(1, DType::kF32, MakeDims({5, 60, 4}));
  op.d = Dense(4, DType::kBF16, MakeDims({5, 60, 300}));
  EXPECT_THAT(WhyNotOp(op), HasSubstr("stride 0"));
  op = Op();
  op.a.values = Dense(0, DType::kE4M3, MakeDims({1 << 21, 16384}));
  op.a.scales = Dense(1, DType::kF32, MakeDims({1 << 21, 128}));
  op.b.values.shape[1] = op.b.values.strides[0] = 16384;
  op.b.scales = Dense(3, DType::kF32, MakeDims({3, 128}));
  op.d = Dense(4, DType::kBF16, MakeDims({1 << 21, 300}));
  EXPECT_EQ(WhyNotOp(op), "");  // 1 GiB of scales are copied
  op.a.values.shape[0] = op.a.scales->shape[0] = op.d.shape[0] = (1 << 21) + 4;
  EXPECT_THAT(WhyNotOp(op), HasSubstr("copies of its scales take more than"));
  op.a.scales->strides = MakeDims({1, (1 << 21) + 4});
  EXPECT_EQ(WhyNotOp(op), "");
}

// Explain asks without memory, Compile with it: the arguments that both judge are the same.
TEST(GemmOpTest, AProblemGivesTheArgumentsOfItsOp) {
  MatmulOp op = Op();
  op.a.values = {0, 512, DType::kE4M3, MakeDims({5, 60, 512}), MakeDims({60 * 528 + 16, 528, 1})};
  op.a.scales = TensorRef{1, 8, DType::kF32, MakeDims({5, 60, 4}), MakeDims({244, 1, 61})};
  op.b.scales->strides = MakeDims({1, 3});
  op.d = Dense(4, DType::kBF16, MakeDims({5, 60, 300}));
  op.c = TensorRef{5, 6, DType::kBF16, MakeDims({5, 60, 300}), MakeDims({18000, 1, 60})};
  op.beta = 0.5f;
  op.bias = TensorRef{6, 0, DType::kF32, MakeDims({300}), MakeDims({2})};
  const AnyGemmArgs placed = ArgsOf(op, Slots());
  const AnyGemmArgs unplaced = UnplacedArgs(ProblemOf(op));
  const auto strides = [](const auto& x) {
    return std::vector<int64_t>{x.batch_stride, x.row_stride};
  };
  const auto scales = [](const ScaleView& s) {
    return std::vector<int64_t>{s.batch_stride, s.row_stride, s.k_stride, s.row_blocks};
  };
  EXPECT_EQ(unplaced.batch, placed.batch);
  for (const auto& [x, y] : {std::pair(&unplaced.a, &placed.a), {&unplaced.b, &placed.b}}) {
    EXPECT_EQ(strides(*x), strides(*y));
    EXPECT_EQ(x->k_stride, y->k_stride);
    EXPECT_EQ(scales(x->scales), scales(y->scales));
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(unplaced.a.data), 16u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(unplaced.a.scales.data), 8u);
  for (const auto& [x, y] : {std::pair(&unplaced.d, &placed.d), {&unplaced.c, &placed.c}}) {
    EXPECT_EQ(strides(*x), strides(*y));
    EXPECT_EQ(x->col_stride, y->col_stride);
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(unplaced.c.data), 2u);
  EXPECT_EQ(unplaced.bias_stride, placed.bias_stride);
  EXPECT_EQ(unplaced.out, placed.out);
  const ScaleCopies copies = CopiesOf(placed);
  EXPECT_TRUE(copies.a && copies.b);
  EXPECT_EQ(CopiesOf(unplaced).scratch_bytes, copies.scratch_bytes);
}

// A slot that does not start where the caller said is told of before anything is launched there.
TEST(GemmOpTest, PrepareRefusesAddressesThatAreNotAsTheProblemPromised) {
  std::vector<std::byte*> slots = Slots();
  slots[0] += 8;
  const auto prepared = PrepareTma(AllVariants()[0], PlacedArgs(Op(), slots), kScratch, {});
  EXPECT_EQ(prepared.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(prepared.status().message()),
              HasSubstr("a is at an address 8 bytes past a multiple of 16"));
}

TEST(GemmOpTest, AGatesProductHasNoPlaceYet) {
  MatmulOp op = Op();
  op.gate = Gate{.activation = Activation::kSilu, .limit = 7};
  op.d = Dense(4, DType::kE4M3, MakeDims({60, 150}));
  op.d_scales = Dense(5, DType::kF32, MakeDims({60, 2}));
  const std::vector<std::byte*> slots = Slots();
  const MatmulArgs args = PlacedArgs(op, slots);
  EXPECT_EQ(args.problem, ProblemOf(op));
  EXPECT_EQ(args.gemm.n, 300);
  EXPECT_EQ(args.gemm.out, ElementType::kBF16);
  EXPECT_EQ(args.gemm.d.data, nullptr);
  EXPECT_EQ(args.gemm.d.row_stride, 300);
  ASSERT_TRUE(args.gate.has_value());
  EXPECT_EQ(args.gate->src, nullptr);
  EXPECT_EQ(args.gate->src_row, 300);
  EXPECT_EQ(args.gate->n, 150);
  EXPECT_EQ(args.gate->dst, slots[4]);
  EXPECT_EQ(static_cast<void*>(args.gate->scales), slots[5]);
  EXPECT_EQ(args.gate->limit, 7);
  EXPECT_FALSE(PlacedArgs(Op(), slots).gate.has_value());
}

}  // namespace
}  // namespace gemmd::kernels::cuda
