// Programs whose ops share memory here and there give what their ops give one by one, on a device.

#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/backend_fixture.h"
#include "tests/kernels/cuda/layers.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kM = 32;
constexpr int64_t kN = 4096;  // and k: a matmul takes several times as long as what surrounds it
constexpr int kEach = 3;      // matrices of each sort
constexpr int64_t kBytes[] = {kM * kN * 2, kM* kN, kM* kN / 128 * 4};

// Slots: kEach matrices in BF16, as many in E4M3, their scales, then the weights and theirs.
TensorRef Wide(int i) { return Dense(i, DType::kBF16, MakeDims({kM, kN})); }
Operand Narrow(int i) {
  return {Dense(kEach + i, DType::kE4M3, MakeDims({kM, kN})), ScaleGranularity::kBlock1x128,
          TensorRef{2 * kEach + i, 0, DType::kF32, MakeDims({kM, kN / 128}), MakeDims({1, kM})}};
}
Operand Weights() {
  return {Dense(3 * kEach, DType::kE4M3, MakeDims({kN, kN})), ScaleGranularity::kBlock128x128,
          Dense(3 * kEach + 1, DType::kF32, MakeDims({kN / 128, kN / 128}))};
}

class IndependentGpuTest : public BackendGpuTest {
 protected:
  void SetUp() override {
    BackendGpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    for (int i = 0; i < 3 * kEach; ++i) Add(kBytes[i / kEach]);
    Add(kN * kN);
    Add(kN / 128 * kN / 128 * 4);
    std::vector<std::byte> weights = RandomBytes(kN * kN, 1);
    for (std::byte& value : weights) value &= std::byte{0xb7};  // finite
    ASSERT_TRUE(memory_[3 * kEach]->CopyIn(0, weights).ok());
    const std::vector<float> scales(kN / 128 * kN / 128, 1.0f / 256);
    ASSERT_TRUE(
        memory_[3 * kEach + 1]
            ->CopyIn(0, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(scales.data()),
                                            scales.size() * sizeof(float)))
            .ok());
    stream_ = backend_->CreateStream({});
  }

  void Add(int64_t bytes) {
    memory_.push_back(Allocate(bytes));
    slots_.push_back(memory_.back()->address());
  }

  void Reset() {
    for (int i = 0; i < kEach; ++i) {
      std::vector<std::byte> x = RandomBytes(kBytes[0], 2 + i);
      for (size_t j = 1; j < x.size(); j += 2) x[j] = std::byte{0x3f};  // magnitude 0.5 to 2
      ASSERT_TRUE(memory_[i]->CopyIn(0, x).ok());
      for (int sort = 1; sort < 3; ++sort) {
        const std::vector<std::byte> zeros(kBytes[sort]);
        ASSERT_TRUE(memory_[sort * kEach + i]->CopyIn(0, zeros).ok());
      }
    }
  }

  std::vector<std::vector<std::byte>> All() {
    std::vector<std::vector<std::byte>> all;
    for (int i = 0; i < 3 * kEach; ++i) all.push_back(Contents(*memory_[i]));
    return all;
  }

  void RunAll(const std::shared_ptr<const Program>& program) {
    ASSERT_TRUE(Run(*stream_, program, {slots_, {}, {}}).status.ok());
  }

  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<std::byte*> slots_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(IndependentGpuTest, AnyOrderOfSharingGivesWhatTheOpsGive) {
  std::mt19937 random(7);
  const auto pick = [&] { return static_cast<int>(random() % kEach); };
  for (int round = 0; round < 12; ++round) {
    std::vector<Op> ops;
    for (int i = 0; i < 24; ++i) {
      switch (random() % 4) {
        case 0:
          ops.push_back(CopyOp{Wide(0), Wide(1 + pick() % 2)});
          break;
        case 1:
          ops.push_back(MatmulOp{.a = Narrow(pick()), .b = Weights(), .d = Wide(pick())});
          break;
        default: {
          const Operand to = Narrow(pick());
          ops.push_back(QuantizeOp{Wide(pick()), to.values, *to.scales, to.granularity});
        }
      }
    }
    Reset();
    for (const Op& op : ops) {
      const auto program = backend_->Compile({op});
      ASSERT_TRUE(program.ok()) << program.status();
      RunAll(*program);
    }
    const auto expected = All();
    const auto program = backend_->Compile(ops);
    ASSERT_TRUE(program.ok()) << program.status();
    for (int run = 0; run < 4; ++run) {  // op by op, then as a graph
      Reset();
      RunAll(*program);
      ASSERT_EQ(All(), expected) << "round " << round << ", run " << run;
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
