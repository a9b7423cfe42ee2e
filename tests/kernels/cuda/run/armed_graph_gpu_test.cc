// What is particular about an armed plan's runs on a device: they tell of their end by a word, and
// their graphs take part of the way that other runs' streams take.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/kernels/cuda/backend_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kRuns = 41;
constexpr double kNearSeconds = 3e-6;
constexpr double kNearShare = 0.2;

class ArmedGraphGpuTest : public BackendGpuTest {
 protected:
  void SetUp() override {
    BackendGpuTest::SetUp();
    if (backend_ == nullptr) return;
    if (!backend_->signals()) GTEST_SKIP() << "the driver cannot set words from a stream";
    word_ = Allocate(64, MemoryKind::kHostShared);
  }

  Bindings Armed(const Memory& memory) {
    Bindings bindings{{memory.address()}, {}, {}};
    bindings.signal = word_->address();
    return bindings;
  }
  uint32_t TakeWord() {
    uint32_t value = 0;
    std::memcpy(&value, Contents(*word_).data(), sizeof(value));
    const std::vector<std::byte> zeros(sizeof(value));
    EXPECT_TRUE(word_->CopyIn(0, zeros).ok());
    return value;
  }

  std::unique_ptr<Memory> word_;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

TEST_F(ArmedGraphGpuTest, IsTimedAsARunWithEventsOfTheStreamIs) {
  for (const int64_t count : {int64_t{1} << 10, int64_t{4} << 20, int64_t{32} << 20}) {
    auto memory = Allocate(4 * count);
    auto stream = backend_->CreateStream({});
    const auto program = Fill(count, 3);
    std::vector<double> armed, plain;
    for (int run = 0; run < kRuns; ++run) {
      LaunchResult result = Run(*stream, program, Armed(*memory));
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_TRUE(result.signalled);
      EXPECT_EQ(TakeWord(), 1u);
      EXPECT_EQ(result.way, run == 0 ? LaunchWay::kOps : LaunchWay::kGraph);
      if (run > 1) armed.push_back(result.device_seconds);
      result = Run(*stream, program, {{memory->address()}, {}, {}});
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_FALSE(result.signalled);
      EXPECT_EQ(result.way, LaunchWay::kGraph);  // the ring's run before it was the first
      EXPECT_EQ(TakeWord(), 0u);
      if (run > 1) plain.push_back(result.device_seconds);
    }
    const double expected = Median(plain);
    EXPECT_NEAR(Median(armed), expected, std::max(kNearSeconds, kNearShare * expected))
        << count << " elements";
  }
}

// Behind one another they are chained: each begins when the one in front ends.
TEST_F(ArmedGraphGpuTest, RunsInFlightKeepTheirTimesApart) {
  constexpr int64_t kCount = int64_t{32} << 20;
  auto memory = Allocate(4 * kCount);
  const auto program = Fill(kCount, 3);
  std::vector<LaunchResult> results;
  double alone = 0;
  {
    auto stream = backend_->CreateStream({});
    for (int run = 0; run < 4; ++run) {
      alone = Run(*stream, program, Armed(*memory)).device_seconds;
    }
    for (int run = 0; run < kRuns; ++run) {
      stream->Launch(program, Armed(*memory),
                     [&](LaunchResult result) { results.push_back(std::move(result)); });
    }
  }  // waits for what was launched
  ASSERT_EQ(results.size(), static_cast<size_t>(kRuns));
  int chained = 0;
  for (const LaunchResult& result : results) {
    ASSERT_TRUE(result.status.ok()) << result.status;
    chained += result.way == LaunchWay::kChained ? 1 : 0;
    EXPECT_GT(result.device_seconds, alone / 3);
    EXPECT_LT(result.device_seconds, 3 * alone);
  }
  EXPECT_GT(chained, kRuns / 2);
  EXPECT_EQ(TakeWord(), 1u);
}

// A kernel that starts under the end of another run's must not read what that one has not written.
TEST_F(ArmedGraphGpuTest, ChainedRunsSeeWhatTheRunsInFrontWrote) {
  constexpr int64_t kCount = int64_t{8} << 20;
  constexpr int kCopies = 24, kRounds = 4;
  std::vector<std::unique_ptr<Memory>> memories;
  for (int i = 0; i <= kCopies; ++i) memories.push_back(Allocate(4 * kCount));
  const TensorRef from = Dense(0, DType::kF32, MakeDims({kCount}));
  const TensorRef to = Dense(1, DType::kF32, MakeDims({kCount}));
  const auto copy = backend_->Compile({Op(CopyOp{from, to})});
  ASSERT_TRUE(copy.ok()) << copy.status();
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<std::byte> bytes = RandomBytes(4 * kCount, round);
    ASSERT_TRUE(memories[0]->CopyIn(0, bytes).ok());
    int chained = 0;
    {
      auto stream = backend_->CreateStream({});
      for (int i = 0; i < kCopies; ++i) {
        Bindings bindings{{memories[i]->address(), memories[i + 1]->address()}, {}, {}};
        bindings.signal = word_->address();
        stream->Launch(*copy, std::move(bindings), [&](LaunchResult result) {
          EXPECT_TRUE(result.status.ok()) << result.status;
          EXPECT_GT(result.device_seconds, 0);
          chained += result.way == LaunchWay::kChained ? 1 : 0;
        });
      }
    }
    EXPECT_GT(chained, kCopies / 2);
    EXPECT_EQ(Contents(*memories[kCopies]), bytes) << round;
  }
}

// Two slots of one plan on the same buffers differ in nothing but their words.
TEST_F(ArmedGraphGpuTest, EverySlotsRunSetsItsOwnWord) {
  auto memory = Allocate(64);
  auto other_word = Allocate(64, MemoryKind::kHostShared);
  auto stream = backend_->CreateStream({});
  const auto program = Fill(16, 3);
  Bindings other = Armed(*memory);
  other.signal = other_word->address();
  for (int run = 0; run < 4; ++run) {
    ASSERT_TRUE(Run(*stream, program, other).status.ok());
    EXPECT_EQ(TakeWord(), 0u) << run;
    ASSERT_TRUE(Run(*stream, program, Armed(*memory)).status.ok());
    EXPECT_EQ(TakeWord(), 1u) << run;
  }
  EXPECT_EQ(Contents(*other_word)[0], std::byte{1});
}

}  // namespace
}  // namespace gemmd::kernels::cuda
