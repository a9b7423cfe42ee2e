// A chain of quantisations and matmuls, of which each may start under the end of the one before it,
// gives what its ops give one by one, on a device.

#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/backend_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kChainRows = 32;
constexpr int64_t kChainWidth = 8192;  // and k: 64 MiB of weights

using ChainGpuTest = BackendGpuTest;

TEST_F(ChainGpuTest, AChainGivesWhatItsOpsGive) {
  std::vector<std::byte> weights = RandomBytes(kChainWidth * kChainWidth, 1);
  for (std::byte& value : weights) value &= std::byte{0xb7};  // finite
  std::vector<std::byte> x = RandomBytes(kChainRows * kChainWidth * 2, 2);
  for (size_t i = 1; i < x.size(); i += 2) x[i] = std::byte{0x3f};  // magnitude 0.5 to 2
  const std::vector<float> scales(kChainWidth / 128 * kChainWidth / 128, 1.0f / 256);
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<std::byte*> slots;
  for (const int64_t bytes :
       {kChainRows * kChainWidth * 2, kChainRows * kChainWidth, kChainRows * kChainWidth / 128 * 4,
        kChainWidth * kChainWidth, static_cast<int64_t>(scales.size() * sizeof(float))}) {
    memory.push_back(Allocate(bytes));
    slots.push_back(memory.back()->address());
  }
  ASSERT_TRUE(memory[3]->CopyIn(0, weights).ok());
  ASSERT_TRUE(memory[4]
                  ->CopyIn(0, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(scales.data()),
                                                  scales.size() * sizeof(float)))
                  .ok());
  const auto stream = backend_->CreateStream({});

  const std::vector<Op> ops = Layers(kChainRows, kChainWidth, 3);
  ASSERT_TRUE(memory[0]->CopyIn(0, x).ok());
  for (const Op& op : ops) {
    const auto program = backend_->Compile({op});
    ASSERT_TRUE(program.ok()) << program.status();
    ASSERT_TRUE(Run(*stream, *program, {slots, {}, {}}).status.ok());
  }
  const std::vector<std::byte> expected = Contents(*memory[0]);
  ASSERT_NE(expected, x);

  const auto chain = backend_->Compile(ops);
  ASSERT_TRUE(chain.ok()) << chain.status();
  for (int run = 0; run < 3; ++run) {  // op by op, then as a graph
    ASSERT_TRUE(memory[0]->CopyIn(0, x).ok());
    ASSERT_TRUE(Run(*stream, *chain, {slots, {}, {}}).status.ok());
    EXPECT_EQ(Contents(*memory[0]), expected) << "run " << run;
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
