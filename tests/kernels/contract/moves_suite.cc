// Copy, Convert, Fill, Write, Read, and programs of several ops.

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/contract/matmul_check.h"

namespace gemmd::kernels::contract {
namespace {

Dims RandomShape(Scene& scene) {
  switch (scene.Between(0, 2)) {
    case 0:
      return MakeDims({scene.Between(1, 3000)});
    case 1:
      return MakeDims({scene.Between(1, 70), scene.Between(1, 700)});
    default:
      return MakeDims({scene.Between(1, 5), scene.Between(1, 30), scene.Between(1, 200)});
  }
}

// Elements' bytes in row-major order.
Bytes DenseBytes(const Bytes& slot, const TensorRef& tensor) {
  Bytes dense;
  const int size = SizeBytes(tensor.dtype);
  Dims index{tensor.shape.rank, {}};
  const int64_t count = *NumElements(tensor.shape);
  for (int64_t e = 0; e < count; ++e) {
    int64_t at = 0;
    for (int i = 0; i < index.rank; ++i) at += index[i] * tensor.strides[i];
    const std::byte* data = slot.data() + tensor.offset_bytes + at * size;
    dense.insert(dense.end(), data, data + size);
    for (int i = index.rank - 1; i >= 0 && ++index[i] == tensor.shape[i]; --i) index[i] = 0;
  }
  return dense;
}

TEST_P(ContractTest, CopiesBitsBetweenAnyPlacements) {
  Scene seed_scene;
  for (const DTypeInfo& info : kDTypes) {
    for (Placement from : kPlacements) {
      for (Placement to : kPlacements) {
        Scene scene(seed_scene.random()());
        const Dims shape = RandomShape(scene);
        SCOPED_TRACE(testing::Message() << ToString(shape) << Name(from) << Name(to));
        const CopyOp op{scene.Random(info.dtype, shape, from),
                        scene.Poisoned(info.dtype, shape, to)};
        const Outcome outcome = scene.Run(executor(), Op(op));
        EXPECT_TRUE(DenseBytes(outcome.slots[1], op.dst) == DenseBytes(scene.slots()[0], op.src));
        ExpectOnlyElementsWritten(scene, outcome, op.dst);
      }
    }
  }
}

TEST_P(ContractTest, CopiesABroadcastInput) {
  Scene scene;
  CopyOp op{scene.Random(DType::kBF16, MakeDims({33, 1})),
            scene.Poisoned(DType::kBF16, MakeDims({33, 65}))};
  op.src.shape = op.dst.shape;
  op.src.strides = MakeDims({1, 0});
  const Outcome outcome = scene.Run(executor(), Op(op));
  EXPECT_TRUE(DenseBytes(outcome.slots[1], op.dst) == DenseBytes(scene.slots()[0], op.src));
}

// A slot with every code of `dtype` once; for FP32 numbers around and between the others' codes.
TensorRef AllCodes(Scene& scene, DType dtype) {
  if (dtype != DType::kF32) {
    const int64_t count = SizeBytes(dtype) == 1 ? 256 : 65536;
    const TensorRef tensor = scene.Random(dtype, MakeDims({count}));
    scene.inputs.emplace_back(count * SizeBytes(dtype));
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(scene.inputs.back().data() + i * SizeBytes(dtype), &i, SizeBytes(dtype));
    }
    return tensor;
  }
  std::vector<float> values = {0.0f,
                               -0.0f,
                               448.0f,
                               464.0f,
                               465.0f,
                               1e30f,
                               -1e30f,
                               126.5f,
                               127.5f,
                               -127.5f,
                               0.5f,
                               1.5f,
                               2.5f,
                               65504.0f,
                               65519.0f,
                               65520.0f,
                               3.39e38f,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
  // Ties between neighbouring E4M3 codes, and their neighbours on both sides.
  for (uint32_t code = 0; code < 0x7e; ++code) {
    const float tie = static_cast<float>(
        (DecodeReference(DType::kE4M3, code) + DecodeReference(DType::kE4M3, code + 1)) / 2);
    for (float x : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e9f)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  }
  std::uniform_real_distribution<float> exponent(-30, 20);
  while (values.size() < 5000) {
    values.push_back(std::exp2(exponent(scene.random())) * (values.size() % 2 ? 1.0f : -1.0f));
  }
  const TensorRef tensor =
      scene.Random(DType::kF32, MakeDims({static_cast<int64_t>(values.size())}));
  scene.inputs.emplace_back(values.size() * sizeof(float));
  std::memcpy(scene.inputs.back().data(), values.data(), scene.inputs.back().size());
  return tensor;
}

TEST_P(ContractTest, ConvertsEveryCodeOfEveryTypeToEveryType) {
  for (const DTypeInfo& from : kDTypes) {
    for (const DTypeInfo& to : kDTypes) {
      if (from.dtype == to.dtype) continue;
      Scene scene;
      SCOPED_TRACE(testing::Message() << from.name << " to " << to.name);
      const TensorRef src = AllCodes(scene, from.dtype);
      const TensorRef dst = scene.Poisoned(to.dtype, src.shape, Placement::kPadded);
      const Outcome outcome = scene.Run(executor(), {Op(WriteOp{src, 0}), Op(ConvertOp{src, dst})});
      const std::vector<double> in = Values(outcome, src);
      const std::vector<double> out = Values(outcome, dst);
      for (size_t i = 0; i < in.size(); ++i) {
        const double expected = DecodeReference(to.dtype, EncodeReference(to.dtype, in[i]));
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(out[i])) << in[i];
        } else {
          ASSERT_EQ(out[i], expected) << in[i];
          ASSERT_EQ(std::signbit(out[i]), std::signbit(expected)) << in[i];
        }
      }
      ExpectOnlyElementsWritten(scene, outcome, dst);
    }
  }
}

TEST_P(ContractTest, ConvertsBetweenAnyPlacements) {
  Scene seed_scene;
  for (Placement from : kPlacements) {
    for (Placement to : kPlacements) {
      Scene scene(seed_scene.random()());
      const Dims shape = RandomShape(scene);
      const DType src = kDTypes[scene.Between(0, kDTypes.size() - 1)].dtype;
      const DType dst = kDTypes[scene.Between(0, kDTypes.size() - 1)].dtype;
      SCOPED_TRACE(testing::Message() << ToString(shape) << Name(src) << Name(dst));
      const ConvertOp op{scene.Random(src, shape, from), scene.Poisoned(dst, shape, to)};
      const Outcome outcome = scene.Run(executor(), Op(op));
      const std::vector<double> in = Values(outcome, op.src);
      const std::vector<double> out = Values(outcome, op.dst);
      for (size_t i = 0; i < in.size(); ++i) {
        // Equal types copy bits: -128 stays.
        ASSERT_EQ(out[i], src == dst ? in[i] : DecodeReference(dst, EncodeReference(dst, in[i])));
      }
      ExpectOnlyElementsWritten(scene, outcome, op.dst);
    }
  }
}

TEST_P(ContractTest, FillsWithOneRounding) {
  // 1 + 2^-8 + 2^-40 lies just above a tie of BF16 that FP32 cannot tell from the tie.
  const double values[] = {0,
                           1.5,
                           -3,
                           1e9,
                           -1e300,
                           1 + 0x1p-8 + 0x1p-40,
                           0.1,
                           126.5,
                           17.5,
                           std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()};
  for (const DTypeInfo& info : kDTypes) {
    for (double value : values) {
      for (Placement placement : kPlacements) {
        Scene scene(11);
        SCOPED_TRACE(testing::Message() << info.name << " " << value << Name(placement));
        const FillOp op{scene.Poisoned(info.dtype, MakeDims({3, 17, 45}), placement), value};
        const Outcome outcome = scene.Run(executor(), Op(op));
        const double expected = DecodeReference(info.dtype, EncodeReference(info.dtype, value));
        for (double x : Values(outcome, op.dst)) {
          if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(x));
          } else {
            ASSERT_EQ(x, expected);
          }
        }
        ExpectOnlyElementsWritten(scene, outcome, op.dst);
      }
    }
  }
}

TEST_P(ContractTest, WritesAndReadsBytesInRowMajorOrder) {
  Scene seed_scene;
  for (const DTypeInfo& info : kDTypes) {
    for (Placement placement : kPlacements) {
      Scene scene(seed_scene.random()());
      const Dims shape = RandomShape(scene);
      SCOPED_TRACE(testing::Message() << ToString(shape) << Name(placement));
      const TensorRef tensor = scene.Poisoned(info.dtype, shape, placement);
      Bytes data(*NumElements(shape) * info.size_bytes);
      for (std::byte& byte : data) byte = static_cast<std::byte>(scene.random()());
      scene.inputs.push_back(data);
      scene.output_bytes.push_back(static_cast<int64_t>(data.size()));
      const Outcome outcome =
          scene.Run(executor(), {Op(WriteOp{tensor, 0}), Op(ReadOp{tensor, 0})});
      EXPECT_TRUE(outcome.outputs[0] == data);
      EXPECT_TRUE(DenseBytes(outcome.slots[0], tensor) == data);
      ExpectOnlyElementsWritten(scene, outcome, tensor);
    }
  }
}

TEST_P(ContractTest, TakesTensorsWithoutElements) {
  Scene scene;
  const TensorRef a = scene.Poisoned(DType::kF32, MakeDims({0, 4}));
  const TensorRef b = scene.Poisoned(DType::kF32, MakeDims({0, 4}));
  scene.inputs.emplace_back();
  scene.output_bytes.push_back(0);
  const Outcome outcome = scene.Run(
      executor(), {Op(WriteOp{a, 0}), Op(CopyOp{a, b}), Op(FillOp{b, 1}), Op(ReadOp{b, 0})});
  EXPECT_TRUE(outcome.outputs[0].empty());
}

TEST_P(ContractTest, RunsOpsInOrder) {
  Scene scene;
  // y = x . w^T, x = convert(y), twice over: a missed dependency gives other numbers or poison.
  const TensorRef x = scene.Random(DType::kBF16, MakeDims({20, 64}));
  const TensorRef w = scene.Random(DType::kBF16, MakeDims({64, 64}));
  const TensorRef y = scene.Poisoned(DType::kF32, MakeDims({20, 64}));
  MatmulOp matmul;
  matmul.a.values = x;
  matmul.b.values = w;
  matmul.d = y;
  const Op ops[] = {matmul, ConvertOp{y, x}, matmul, FillOp{w, 1}};
  const Outcome all = scene.Run(executor(), ops);
  ASSERT_EQ(all.kernels.size(), 4u);
  Scene by_hand(scene);
  for (const Op& op : ops) {
    const Outcome outcome = by_hand.Run(executor(), op);
    by_hand.Replace(outcome);
  }
  EXPECT_TRUE(all.slots == by_hand.slots());
}

}  // namespace
}  // namespace gemmd::kernels::contract
