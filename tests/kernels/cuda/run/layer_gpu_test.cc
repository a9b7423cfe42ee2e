// A layer of experts as one program, on a device: its kernels share work and start under one
// another's ends, and leave what the ops leave one by one, for every routing and by one graph.

#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/op.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr uint16_t kPoison = 0xc0e0;  // -7

struct Sizes {
  int64_t tokens, top_k, experts, hidden, inner;
  int64_t rows() const { return tokens * top_k; }
};

enum Slot { kX, kIds, kWeights, kNumbers, kA, kUp, kH, kDown, kExpanded, kDst, kSlots };

// A matrix and its scales in one slot, the scales at a multiple of 256 bytes behind it.
Operand OperandOf(int slot, const Dims& shape, ScaleGranularity granularity) {
  const int64_t bytes = (NumElements(shape).value() + 255) / 256 * 256;
  return {Dense(slot, DType::kE4M3, shape), granularity,
          Dense(slot, DType::kF32, ScaleShape(shape, granularity), bytes)};
}

class LayerGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    auto backend = CreateCudaBackend({.memory_bytes = int64_t{4} << 30, .self_test = false});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  void Make(const Sizes& sizes) {
    sizes_ = sizes;
    const Dims choices = MakeDims({sizes.tokens, sizes.top_k});
    const Dims rows = MakeDims({sizes.rows()});
    RouteOp route{.ids = Dense(kIds, DType::kI32, choices),
                  .offsets = Dense(kNumbers, DType::kI32, MakeDims({sizes.experts + 1})),
                  .rows = Dense(kNumbers, DType::kI32, rows, 4096),
                  .positions = Dense(kNumbers, DType::kI32, choices, 131072)};
    constexpr ScaleGranularity kRows = ScaleGranularity::kBlock1x128;
    constexpr ScaleGranularity kSquares = ScaleGranularity::kBlock128x128;
    const Operand a = OperandOf(kA, MakeDims({sizes.rows(), sizes.hidden}), kRows);
    const Operand h = OperandOf(kH, MakeDims({sizes.rows(), sizes.inner}), kRows);
    QuantizeOp quantize{Dense(kX, DType::kBF16, MakeDims({sizes.tokens, sizes.hidden})), a.values,
                        *a.scales, kRows, route.rows};
    GroupedMatmulOp first;
    first.a = a;
    first.b = OperandOf(kUp, MakeDims({sizes.experts, 2 * sizes.inner, sizes.hidden}), kSquares);
    first.groups = route.offsets;
    first.d = h.values;
    first.d_scales = h.scales;
    first.gate = Gate{};
    GroupedMatmulOp second;
    second.a = h;
    second.b = OperandOf(kDown, MakeDims({sizes.experts, sizes.hidden, sizes.inner}), kSquares);
    second.groups = route.offsets;
    second.d = Dense(kExpanded, DType::kBF16, MakeDims({sizes.rows(), sizes.hidden}));
    CombineOp combine{.src = second.d,
                      .positions = route.positions,
                      .weights = Dense(kWeights, DType::kF32, choices),
                      .dst = Dense(kDst, DType::kBF16, MakeDims({sizes.tokens, sizes.hidden}))};
    ops_ = {WriteOp{route.ids, 0}, FillOp{combine.dst, -7}, route, quantize, first, second, combine,
            ReadOp{combine.dst, 0}};
    FillMemory();
  }

  void FillMemory() {
    std::mt19937 random(11);
    std::vector<int64_t> bytes(kSlots, 0);
    for (const Op& op : ops_) {
      ForEachTensor(op, [&](const TensorRef& tensor, Access) {
        bytes[tensor.slot] = std::max(bytes[tensor.slot], TouchedBytes(tensor)->end);
      });
    }
    memory_.clear();
    for (Bindings* bindings : {&whole_, &apart_}) {
      *bindings = Bindings();
      for (int slot = 0; slot < kSlots; ++slot) {
        auto memory = backend_->Allocate(bytes[slot], MemoryKind::kDevice);
        ASSERT_TRUE(memory.ok()) << memory.status();
        bindings->slots.push_back((*memory)->address());
        memory_.push_back(*std::move(memory));
      }
    }
    for (int slot = 0; slot < kSlots; ++slot) {
      std::vector<std::byte> content(bytes[slot], std::byte{0xff});
      if (slot == kX || slot == kUp || slot == kDown) {
        // Of both types: magnitudes of less than 2, of both signs.
        for (std::byte& byte : content) byte = static_cast<std::byte>(random() & 0xbf);
      }
      const auto put = [&](const TensorRef& tensor, float value) {
        const std::vector<float> values(NumElements(tensor.shape).value(), value);
        std::memcpy(content.data() + tensor.offset_bytes, values.data(), values.size() * 4);
      };
      if (slot == kWeights) put(std::get<CombineOp>(ops_[6]).weights, 0.25f);
      if (slot == kUp) put(*std::get<GroupedMatmulOp>(ops_[4]).b.scales, 0.05f);
      if (slot == kDown) put(*std::get<GroupedMatmulOp>(ops_[5]).b.scales, 0.02f);
      for (const int set : {0, 1}) {
        ASSERT_TRUE(memory_[set * kSlots + slot]->CopyIn(0, content).ok());
      }
    }
  }

  LaunchResult Run(Stream& stream, const std::shared_ptr<const Program>& program,
                   const Bindings& memory, const std::vector<int32_t>& ids,
                   std::vector<uint16_t>& dst) {
    Bindings bindings;
    bindings.slots = memory.slots;
    bindings.inputs = {absl::MakeConstSpan(reinterpret_cast<const std::byte*>(ids.data()),
                                           ids.size() * sizeof(int32_t))};
    bindings.outputs = {
        absl::MakeSpan(reinterpret_cast<std::byte*>(dst.data()), dst.size() * sizeof(uint16_t))};
    absl::Notification done;
    LaunchResult result;
    stream.Launch(program, std::move(bindings), [&](LaunchResult r) {
      result = std::move(r);
      done.Notify();
    });
    done.WaitForNotification();
    return result;
  }

  // Every op in a program of its own, so that none knows of another.
  void RunOneByOne(Stream& stream, const std::vector<int32_t>& ids, std::vector<uint16_t>& dst) {
    if (alone_.empty()) {
      for (const Op& op : ops_) {
        auto program = backend_->Compile({op});
        ASSERT_TRUE(program.ok()) << program.status();
        alone_.push_back(*std::move(program));
      }
    }
    for (const auto& program : alone_) {
      const LaunchResult result = Run(stream, program, apart_, ids, dst);
      ASSERT_TRUE(result.status.ok()) << result.status;
    }
  }

  std::vector<std::byte> Bytes(int set, int slot) {
    std::vector<std::byte> bytes(memory_[set * kSlots + slot]->size_bytes());
    EXPECT_TRUE(memory_[set * kSlots + slot]->CopyOut(0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }

  // Uniform, by a few favourites, all to one, with tokens that go nowhere.
  std::vector<int32_t> Routing(std::mt19937& random) const {
    std::vector<int32_t> ids(sizes_.rows());
    const uint32_t kind = random() % 4, hot = random();
    for (int32_t& id : ids) {
      const uint32_t most = kind == 1 ? 3 : static_cast<uint32_t>(sizes_.experts);
      id = static_cast<int32_t>((kind == 2 ? hot : random()) % most);
      if (kind == 3 && random() % 3 == 0) id = -1;
    }
    return ids;
  }

  std::unique_ptr<Backend> backend_;
  Sizes sizes_;
  std::vector<Op> ops_;
  std::vector<std::shared_ptr<const Program>> alone_;
  std::vector<std::unique_ptr<Memory>> memory_;
  Bindings whole_, apart_;
};

TEST_F(LayerGpuTest, OneGraphServesAThousandRoutingsWithTheBitsOfItsOpsOneByOne) {
  Make({.tokens = 64, .top_k = 8, .experts = 32, .hidden = 512, .inner = 384});
  const auto program = backend_->Compile(ops_);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto stream = backend_->CreateStream({});
  std::mt19937 random(3);
  std::vector<uint16_t> dst(sizes_.tokens * sizes_.hidden), wanted(dst.size());
  int graphs = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::vector<int32_t> ids = Routing(random);
    std::fill(dst.begin(), dst.end(), kPoison);
    const LaunchResult result = Run(*stream, *program, whole_, ids, dst);
    ASSERT_TRUE(result.status.ok()) << result.status;
    graphs += result.way == LaunchWay::kGraph ? 1 : 0;
    ASSERT_NO_FATAL_FAILURE(RunOneByOne(*stream, ids, wanted));
    ASSERT_TRUE(dst == wanted) << "routing " << i;
  }
  EXPECT_EQ(graphs, 999);  // all but the first, which its launches were made for
}

// Sizes on both sides of what one kernel routes, of tokens that are no whole CTA's blocks, and of
// choices by which one token takes several turns.
TEST_F(LayerGpuTest, NumbersCodesAndScalesAreThoseOfTheOpsOneByOne) {
  for (const Sizes& sizes :
       {Sizes{1, 1, 1, 128, 128}, Sizes{7, 3, 5, 144, 128}, Sizes{33, 9, 512, 1040, 128},
        Sizes{5, 2, 3, 4224, 128}, Sizes{300, 13, 17, 256, 128}, Sizes{513, 8, 40, 272, 128},
        Sizes{700, 32, 64, 128, 256}}) {
    Make(sizes);
    alone_.clear();
    const auto program = backend_->Compile(ops_);
    ASSERT_TRUE(program.ok()) << program.status();
    const auto stream = backend_->CreateStream({});
    std::mt19937 random(5);
    std::vector<uint16_t> dst(sizes.tokens * sizes.hidden), wanted(dst.size());
    for (int i = 0; i < 8; ++i) {
      const std::vector<int32_t> ids = Routing(random);
      const LaunchResult result = Run(*stream, *program, whole_, ids, dst);
      ASSERT_TRUE(result.status.ok()) << result.status;
      ASSERT_NO_FATAL_FAILURE(RunOneByOne(*stream, ids, wanted));
      for (const int slot : {kNumbers, kA, kH, kExpanded, kDst}) {
        ASSERT_TRUE(Bytes(0, slot) == Bytes(1, slot))
            << "slot " << slot << " of " << sizes.tokens << " tokens, routing " << i;
      }
    }
  }
}

TEST_F(LayerGpuTest, AnExpertThatIsNoneIsToldOfTheRoute) {
  Make({.tokens = 20, .top_k = 2, .experts = 6, .hidden = 256, .inner = 128});
  const auto program = backend_->Compile(ops_);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto stream = backend_->CreateStream({});
  std::vector<uint16_t> dst(sizes_.tokens * sizes_.hidden);
  std::vector<int32_t> ids(sizes_.rows(), 1);
  ids[7] = 6;
  for (int i = 0; i < 3; ++i) {
    const LaunchResult result = Run(*stream, *program, whole_, ids, dst);
    EXPECT_TRUE(absl::IsInvalidArgument(result.status)) << result.status;
    EXPECT_NE(result.status.message().find("op 2"), std::string::npos) << result.status;
  }
  ids[7] = 5;
  EXPECT_TRUE(Run(*stream, *program, whole_, ids, dst).status.ok());
}

}  // namespace
}  // namespace gemmd::kernels::cuda
