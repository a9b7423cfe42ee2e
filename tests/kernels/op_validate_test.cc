#include <cmath>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/op.h"

namespace gemmd::kernels {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

// A valid matmul with everything, one slot per tensor; tests break one thing of it.
class OpValidateTest : public testing::Test {
 protected:
  OpValidateTest() {
    matmul_.a = {Dense(0, DType::kE4M3, MakeDims({4, 256})), ScaleGranularity::kBlock1x128,
                 Dense(1, DType::kF32, MakeDims({4, 2}))};
    matmul_.b = {Dense(2, DType::kE4M3, MakeDims({8, 256})), ScaleGranularity::kBlock128x128,
                 Dense(3, DType::kF32, MakeDims({1, 2}))};
    matmul_.c = Dense(4, DType::kBF16, MakeDims({4, 8}));
    matmul_.beta = 1;
    matmul_.bias = Dense(5, DType::kF32, MakeDims({8}));
    matmul_.d = Dense(6, DType::kBF16, MakeDims({4, 8}));
    quantize_ = {Dense(0, DType::kBF16, MakeDims({4, 256})),
                 Dense(1, DType::kE4M3, MakeDims({4, 256})),
                 Dense(2, DType::kF32, MakeDims({4, 2})), ScaleGranularity::kBlock1x128};
    copy_ = {Dense(0, DType::kF32, MakeDims({4, 8})), Dense(1, DType::kF32, MakeDims({4, 8}))};
  }

  absl::Status Validate(const Op& op) {
    const int64_t inputs[] = {128, 64};
    const int64_t outputs[] = {128};
    return ValidateOps({op}, slots_, {inputs, outputs});
  }

  void ExpectInvalid(const Op& op, const std::string& text) {
    const absl::Status status = Validate(op);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  std::vector<SlotInfo> slots_ = std::vector<SlotInfo>(8, {2048, false});
  MatmulOp matmul_;
  QuantizeOp quantize_;
  CopyOp copy_;
};

TEST_F(OpValidateTest, OneScaleIsAWholeBatchsForMatmulsAlone) {
  const auto batched = [](int slot, DType dtype, int64_t rows, int64_t cols) {
    return Dense(slot, dtype, MakeDims({2, rows, cols}));
  };
  MatmulOp matmul;
  matmul.a = {batched(0, DType::kI8, 4, 8), ScaleGranularity::kPerTensor,
              Dense(3, DType::kF32, MakeDims({1}))};
  matmul.b = {batched(1, DType::kI8, 6, 8), ScaleGranularity::kPerTensor,
              Dense(4, DType::kF32, MakeDims({2, 1}))};
  matmul.d = batched(2, DType::kF32, 4, 6);
  EXPECT_TRUE(Validate(matmul).ok()) << Validate(matmul);
  matmul.a.scales = Dense(3, DType::kF32, MakeDims({2}));
  ExpectInvalid(matmul, "[1] for the whole batch");
  QuantizeOp quantize{batched(0, DType::kF32, 4, 8), batched(1, DType::kI8, 4, 8),
                      Dense(2, DType::kF32, MakeDims({1})), ScaleGranularity::kPerTensor};
  ExpectInvalid(quantize, "[2, 1]");
}

TEST_F(OpValidateTest, AcceptsValidOps) {
  EXPECT_TRUE(Validate(matmul_).ok()) << Validate(matmul_);
  EXPECT_TRUE(Validate(quantize_).ok()) << Validate(quantize_);
  EXPECT_TRUE(Validate(copy_).ok());
  EXPECT_TRUE(Validate(ConvertOp{quantize_.src, quantize_.dst}).ok());
  EXPECT_TRUE(Validate(FillOp{copy_.dst, std::nan("")}).ok());
  EXPECT_TRUE(Validate(WriteOp{copy_.dst, 0}).ok());
  EXPECT_TRUE(Validate(ReadOp{copy_.src, 0}).ok());
  EXPECT_TRUE(ValidateOps({}, {}, {}).ok());
}

TEST_F(OpValidateTest, NamesTheOpByIndexAndKind) {
  MatmulOp bad = matmul_;
  bad.d.slot = 99;
  const Op ops[] = {copy_, copy_, bad};
  const absl::Status status = ValidateOps(ops, slots_, {});
  EXPECT_THAT(std::string(status.message()),
              StartsWith("op 2 (matmul): d names slot 99 of 8; use"));
}

TEST_F(OpValidateTest, RefusesUnknownEnums) {
  matmul_.a.values.dtype = static_cast<DType>(7);
  ExpectInvalid(matmul_, "a has dtype number 7");
  matmul_.a.values.dtype = static_cast<DType>(255);
  ExpectInvalid(matmul_, "a has dtype number 255");
  matmul_.a.values.dtype = DType::kE4M3;
  matmul_.a.granularity = static_cast<ScaleGranularity>(5);
  ExpectInvalid(matmul_, "granularity number 5");
  matmul_.a.granularity = ScaleGranularity::kBlock1x128;
  matmul_.activation = static_cast<Activation>(kActivations);
  ExpectInvalid(matmul_, "activation number 6");
  quantize_.granularity = static_cast<ScaleGranularity>(200);
  ExpectInvalid(quantize_, "granularity number 200");
}

TEST_F(OpValidateTest, RefusesBadRanks) {
  for (int rank : {0, -1, 4, 1 << 30}) {
    copy_.src.shape.rank = copy_.src.strides.rank = rank;
    ExpectInvalid(copy_, "src has rank ");
  }
  copy_.src.shape.rank = 2;
  copy_.src.strides.rank = 1;
  ExpectInvalid(copy_, "src has 1 strides for 2 dimensions");
  matmul_.a.values = Dense(0, DType::kE4M3, MakeDims({256}));
  ExpectInvalid(matmul_, "give it 2 dimensions");
}

TEST_F(OpValidateTest, RefusesSlotsOutOfRange) {
  for (int slot : {-1, 8, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    copy_.src.slot = slot;
    ExpectInvalid(copy_, "src names slot");
  }
}

TEST_F(OpValidateTest, RefusesNegativeExtentsAndStrides) {
  for (int64_t bad : {int64_t{-1}, kMin}) {
    CopyOp copy = copy_;
    copy.src.shape[0] = copy.dst.shape[0] = bad;
    ExpectInvalid(copy, "is negative");
    copy = copy_;
    copy.src.strides[1] = bad;
    ExpectInvalid(copy, "stride");
    copy = copy_;
    copy.src.offset_bytes = bad == -1 ? -4 : bad;
    ExpectInvalid(copy, "offset_bytes");
  }
}

TEST_F(OpValidateTest, RefusesArithmeticBeyondInt64) {
  for (int64_t huge : {kMax, kMax / 2, kMax / 4, int64_t{1} << 61}) {
    CopyOp copy = copy_;
    copy.src.strides[0] = huge;
    ExpectInvalid(copy, "op 0 (copy): src");
    copy = copy_;
    copy.src.shape[0] = copy.dst.shape[0] = huge;
    ExpectInvalid(copy, "op 0 (copy): src");
    copy = copy_;
    copy.src.offset_bytes = huge / 4 * 4;
    ExpectInvalid(copy, "op 0 (copy): src");
  }
}

TEST_F(OpValidateTest, RefusesMoreElementsThanInt64ThroughZeroStrides) {
  copy_.src.shape = copy_.dst.shape = MakeDims({kMax, kMax});
  copy_.src.strides = MakeDims({0, 0});
  ExpectInvalid(copy_, "more elements than int64");
}

TEST_F(OpValidateTest, RefusesProductsBeyondInt64) {
  matmul_.a = {TensorRef{0, 0, DType::kF32, MakeDims({4, kMax / 8}), MakeDims({0, 0})}};
  matmul_.b = {TensorRef{2, 0, DType::kF32, MakeDims({8, kMax / 8}), MakeDims({0, 0})}};
  ExpectInvalid(matmul_, "m*n*k");
}

TEST_F(OpValidateTest, RefusesViewsBeyondTheirSlot) {
  slots_[0].size_bytes = 127;
  ExpectInvalid(copy_, "src reaches byte 128 of a slot of 127 bytes");
  slots_[0].size_bytes = 128;
  EXPECT_TRUE(Validate(copy_).ok());
  copy_.src.offset_bytes = 4;
  ExpectInvalid(copy_, "src reaches byte 132");
}

TEST_F(OpValidateTest, RefusesMisalignedOffsets) {
  copy_.src.offset_bytes = 2;
  ExpectInvalid(copy_, "offset_bytes=2 is not a multiple of 4");
}

TEST_F(OpValidateTest, RefusesEmptyViewsOutsideTheirSlot) {
  copy_.src.shape = copy_.dst.shape = MakeDims({0, 8});
  EXPECT_TRUE(Validate(copy_).ok());
  copy_.src.offset_bytes = 4096;
  ExpectInvalid(copy_, "src reaches byte 4096");
}

TEST_F(OpValidateTest, RefusesWritesToReadOnlySlots) {
  slots_[6].read_only = true;
  EXPECT_EQ(Validate(matmul_).code(), StatusCode::kFailedPrecondition);
  slots_[6].read_only = false;
  slots_[0].read_only = true;
  EXPECT_TRUE(Validate(matmul_).ok());
  slots_[2].read_only = true;
  EXPECT_EQ(Validate(quantize_).code(), StatusCode::kFailedPrecondition);
}

TEST_F(OpValidateTest, RefusesOutputsThatOverlapThemselves) {
  copy_.dst.strides = MakeDims({0, 1});
  ExpectInvalid(copy_, "to one address");
  copy_.dst.strides = MakeDims({7, 1});  // rows of 8
  ExpectInvalid(copy_, "to one address");
  copy_.dst.strides = MakeDims({1, 4});  // column-major
  EXPECT_TRUE(Validate(copy_).ok());
  copy_.dst.strides = MakeDims({1, 3});
  ExpectInvalid(copy_, "to one address");
}

TEST_F(OpValidateTest, AcceptsInputsThatOverlapThemselves) {
  copy_.src.strides = MakeDims({0, 0});
  EXPECT_TRUE(Validate(copy_).ok());
  matmul_.b.values.strides = MakeDims({0, 1});
  EXPECT_TRUE(Validate(matmul_).ok());
}

TEST_F(OpValidateTest, RefusesMismatchedExtents) {
  MatmulOp op = matmul_;
  op.b.values.shape[1] = 128;
  ExpectInvalid(op, "k=256 of a [4, 256] is not k=128 of b [8, 128]");
  op = matmul_;
  op.d = Dense(6, DType::kBF16, MakeDims({4, 7}));
  ExpectInvalid(op, "d has shape [4, 7], a . b^T asks for [4, 8]");
  op = matmul_;
  op.c = Dense(4, DType::kBF16, MakeDims({8, 4}));
  ExpectInvalid(op, "c has shape [8, 4], d asks for [4, 8]");
  op = matmul_;
  op.bias = Dense(5, DType::kF32, MakeDims({4}));
  ExpectInvalid(op, "bias has shape [4]");
  copy_.dst.shape = MakeDims({8, 4});
  ExpectInvalid(copy_, "dst has shape [8, 4], src asks for [4, 8]");
}

TEST_F(OpValidateTest, RefusesMismatchedBatches) {
  MatmulOp op;
  op.a.values = Dense(0, DType::kF32, MakeDims({2, 4, 8}));
  op.b.values = Dense(1, DType::kF32, MakeDims({2, 4, 8}));
  op.d = Dense(2, DType::kF32, MakeDims({2, 4, 4}));
  EXPECT_TRUE(Validate(op).ok()) << Validate(op);
  op.b.values = Dense(1, DType::kF32, MakeDims({4, 8}));
  EXPECT_TRUE(Validate(op).ok()) << "a shared b";
  op.b.values = Dense(1, DType::kF32, MakeDims({3, 4, 8}));
  ExpectInvalid(op, "batch of b [3, 4, 8] is not the batch of a [2, 4, 8]");
  op.a.values = Dense(0, DType::kF32, MakeDims({4, 8}));
  ExpectInvalid(op, "batch of b");
}

TEST_F(OpValidateTest, RefusesUnsupportedDTypes) {
  MatmulOp op = matmul_;
  op.b.values.dtype = DType::kI8;
  ExpectInvalid(op, "a is e4m3 but b is i8");
  op = matmul_;
  op.d.dtype = op.c->dtype = DType::kI8;
  ExpectInvalid(op, "d is i8");
  op = matmul_;
  op.c->dtype = DType::kF16;
  ExpectInvalid(op, "c is f16");
  op = matmul_;
  op.bias->dtype = DType::kF16;
  ExpectInvalid(op, "bias is f16");
  op = matmul_;
  op.a.scales->dtype = DType::kBF16;
  ExpectInvalid(op, "a.scales is bf16");
  copy_.dst.dtype = DType::kBF16;
  ExpectInvalid(copy_, "src is f32 but dst is bf16; use convert");
  QuantizeOp quantize = quantize_;
  quantize.src.dtype = DType::kI8;
  ExpectInvalid(quantize, "src is i8");
  quantize = quantize_;
  quantize.dst.dtype = DType::kBF16;
  ExpectInvalid(quantize, "dst is bf16");
}

TEST_F(OpValidateTest, RefusesMissingSuperfluousAndMisshapenScales) {
  MatmulOp op = matmul_;
  op.a.scales.reset();
  ExpectInvalid(op, "a has granularity 1x128 but no scales; add a.scales");
  op = matmul_;
  op.b.granularity = ScaleGranularity::kNone;
  ExpectInvalid(op, "b.scales is given but b has granularity none");
  op = matmul_;
  op.b.scales = Dense(3, DType::kF32, MakeDims({8, 2}));
  ExpectInvalid(op, "b.scales has shape [8, 2], granularity 128x128 of b asks for [1, 2]");
  quantize_.granularity = ScaleGranularity::kNone;
  ExpectInvalid(quantize_, "granularity none");
}

TEST_F(OpValidateTest, RefusesNonFiniteFactors) {
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    MatmulOp op = matmul_;
    op.alpha = bad;
    ExpectInvalid(op, "alpha=");
    op = matmul_;
    op.beta = -bad;
    ExpectInvalid(op, "beta=");
  }
}

TEST_F(OpValidateTest, RefusesBetaWithoutC) {
  matmul_.c.reset();
  ExpectInvalid(matmul_, "beta=1 but there is no c");
  matmul_.beta = 0;
  EXPECT_TRUE(Validate(matmul_).ok());
}

TEST_F(OpValidateTest, RefusesOutputsThatOverlapInputs) {
  const auto move_d_to = [&](const TensorRef& other) {
    MatmulOp op = matmul_;
    op.d.slot = other.slot;
    op.c->slot = 7;
    return op;
  };
  ExpectInvalid(move_d_to(matmul_.a.values), "d (bytes 0 to 64) overlaps a");
  ExpectInvalid(move_d_to(*matmul_.a.scales), "overlaps a.scales");
  ExpectInvalid(move_d_to(matmul_.b.values), "overlaps b");
  ExpectInvalid(move_d_to(*matmul_.b.scales), "overlaps b.scales");
  ExpectInvalid(move_d_to(*matmul_.bias), "overlaps bias");
  copy_.dst = copy_.src;
  ExpectInvalid(copy_, "dst (bytes 0 to 128) overlaps src");
  copy_.dst.offset_bytes = 124;
  ExpectInvalid(copy_, "overlaps src");
  copy_.dst.offset_bytes = 128;
  EXPECT_TRUE(Validate(copy_).ok());
}

TEST_F(OpValidateTest, AcceptsCOnlyExactlyAtD) {
  matmul_.c = matmul_.d;
  EXPECT_TRUE(Validate(matmul_).ok());
  matmul_.c->offset_bytes = 2;
  ExpectInvalid(matmul_, "d (bytes 0 to 64) overlaps c (bytes 2 to 66)");
  matmul_.c->offset_bytes = 0;
  matmul_.c->strides = MakeDims({1, 4});
  ExpectInvalid(matmul_, "overlaps c");
}

TEST_F(OpValidateTest, RefusesQuantizeOutputsThatOverlap) {
  QuantizeOp op = quantize_;
  op.scales.slot = op.src.slot;
  ExpectInvalid(op, "scales (bytes 0 to 32) overlaps src");
  op = quantize_;
  op.scales.slot = op.dst.slot;
  ExpectInvalid(op, "overlaps scales");
  op = quantize_;
  op.dst.slot = op.src.slot;
  ExpectInvalid(op, "overlaps src");
}

TEST_F(OpValidateTest, RefusesInlineDataOfTheWrongLength) {
  ExpectInvalid(WriteOp{copy_.dst, 1}, "input 1 has 64 bytes but f32 [4, 8] takes 128");
  ExpectInvalid(WriteOp{copy_.dst, 2}, "input 2 of 2 does not exist");
  ExpectInvalid(WriteOp{copy_.dst, -1}, "input -1 of 2 does not exist");
  ExpectInvalid(ReadOp{copy_.src, 1}, "output 1 of 1 does not exist");
  copy_.src.shape[0] = 3;
  ExpectInvalid(ReadOp{copy_.src, 0}, "output 0 has 128 bytes but f32 [3, 8] takes 96");
}

TEST_F(OpValidateTest, RefusesReadsOfMoreThanInt64ThroughZeroStrides) {
  const TensorRef huge{0, 0, DType::kF32, MakeDims({kMax}), MakeDims({0})};
  ExpectInvalid(ReadOp{huge, 0}, "output 0");
}

TEST_F(OpValidateTest, RefusesTwoReadsIntoOneOutput) {
  const Op ops[] = {ReadOp{copy_.src, 0}, ReadOp{copy_.src, 0}};
  const int64_t outputs[] = {128};
  const absl::Status status = ValidateOps(ops, slots_, {{}, outputs});
  EXPECT_THAT(std::string(status.message()), StartsWith("op 1 (read): output 0 is filled"));
}

// No input may do worse than an error; the sanitizers watch.
TEST_F(OpValidateTest, SurvivesRandomGarbage) {
  std::mt19937_64 random(std::random_device{}());
  const int64_t interesting[] = {0, 1, 2, 4, 8, 127, 128, 256, -1, kMax, kMin, kMax / 2, kMax - 1};
  const auto pick = [&] { return interesting[random() % std::size(interesting)]; };
  const auto scramble = [&](TensorRef& tensor) {
    switch (random() % 8) {
      case 0:
        tensor.slot = static_cast<int>(pick());
        break;
      case 1:
        tensor.offset_bytes = pick();
        break;
      case 2:
        tensor.dtype = static_cast<DType>(random() % 8);
        break;
      case 3:
        tensor.shape.rank = static_cast<int>(random() % 6) - 1;
        break;
      case 4:
        tensor.strides.rank = static_cast<int>(random() % 6) - 1;
        break;
      case 5:
        tensor.shape[random() % 3] = pick();
        break;
      case 6:
        tensor.strides[random() % 3] = pick();
        break;
      default:
        break;
    }
  };
  int accepted = 0;
  for (int i = 0; i < 100000; ++i) {
    MatmulOp op = matmul_;
    for (TensorRef* tensor :
         {&op.a.values, &*op.a.scales, &op.b.values, &*op.b.scales, &op.d, &*op.c, &*op.bias}) {
      if (random() % 4 == 0) scramble(*tensor);
    }
    accepted += Validate(op).ok();
    QuantizeOp quantize = quantize_;
    for (TensorRef* tensor : {&quantize.src, &quantize.dst, &quantize.scales}) scramble(*tensor);
    accepted += Validate(quantize).ok();
  }
  EXPECT_GT(accepted, 0);  // some changes do no harm
}

}  // namespace
}  // namespace gemmd::kernels
