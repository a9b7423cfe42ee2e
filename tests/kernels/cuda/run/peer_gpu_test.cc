// Copy ops that read another GPU's memory.

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/run/cuda_program.h"
#include "tests/kernels/cuda/two_gpus.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kCopiedBytes = (64 << 20) + 12;

TensorRef Floats(int slot) {
  return {slot, 0, DType::kF32, MakeDims({kCopiedBytes / 4}), MakeDims({1})};
}

class PeerGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why_not = WhyNotTwoGpus(); !why_not.empty()) GTEST_SKIP() << why_not;
    for (int i : {0, 1}) gpus_.push_back(BackendOf(i));
  }

  static std::vector<std::byte> Random() {
    std::mt19937_64 random(testing::UnitTest::GetInstance()->random_seed());
    std::vector<std::byte> bytes(kCopiedBytes);
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      const uint64_t word = random();
      std::memcpy(&bytes[i], &word, 8);
    }
    return bytes;
  }
  std::unique_ptr<Memory> On(int gpu, MemoryKind kind = MemoryKind::kDevice) {
    auto memory = gpus_[gpu]->Allocate(kCopiedBytes, kind);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *std::move(memory);
  }
  static std::vector<std::byte> Contents(const Memory& memory) {
    std::vector<std::byte> bytes(memory.size_bytes());
    EXPECT_TRUE(memory.CopyOut(0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }
  // On GPU `gpu`, and waits for it.
  LaunchResult Copy(int gpu, Stream& stream, const std::shared_ptr<const Program>& program,
                    const Memory& from, const Memory& to) {
    EXPECT_TRUE(gpus_[gpu]->CanReach(*gpus_[1 - gpu]).ok());
    LaunchResult result;
    absl::Notification done;
    stream.Launch(program, {{from.address(), to.address()}, {}, {}}, [&](LaunchResult launch) {
      result = std::move(launch);
      done.Notify();
    });
    done.WaitForNotification();
    return result;
  }
  std::shared_ptr<const Program> CopyProgram(int gpu) {
    return *gpus_[gpu]->Compile({Op(CopyOp{Floats(0), Floats(1)})});
  }

  std::vector<std::unique_ptr<Backend>> gpus_;
};

TEST_F(PeerGpuTest, EachReadsTheOther) {
  for (int reader : {0, 1}) {
    const std::vector<std::byte> data = Random();
    auto from = On(1 - reader), to = On(reader);
    ASSERT_TRUE(from->CopyIn(0, data).ok());
    auto stream = gpus_[reader]->CreateStream({});
    const LaunchResult result = Copy(reader, *stream, CopyProgram(reader), *from, *to);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(Contents(*to) == data);
    std::printf("cuda:%d reads cuda:%d at %.1f GB/s\n", reader, 1 - reader,
                static_cast<double>(kCopiedBytes) / result.device_seconds / 1e9);
  }
}

TEST_F(PeerGpuTest, SharedAndHostMemoryAreReadAsWell) {
  for (const MemoryKind kind : {MemoryKind::kDeviceShared, MemoryKind::kHostShared}) {
    const std::vector<std::byte> data = Random();
    auto from = On(1, kind), to = On(0);
    ASSERT_TRUE(from->CopyIn(0, data).ok());
    auto stream = gpus_[0]->CreateStream({});
    const LaunchResult result = Copy(0, *stream, CopyProgram(0), *from, *to);
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_TRUE(Contents(*to) == data);
  }
}

// Runs copies of so many bytes, which are worth a graph, on memory of the other GPU
// that is another one in each round. Whether some run was a graph's.
class PeerGraphGpuTest : public PeerGpuTest {
 protected:
  bool Replays(int64_t bytes) {
    auto to = On(0);
    auto stream = gpus_[0]->CreateStream({});
    const auto some = [&](int slot) {
      return TensorRef{slot, 0, DType::kF32, MakeDims({bytes / 4}), MakeDims({1})};
    };
    const std::vector<Op> ops(4, CopyOp{some(0), some(1)});
    const std::shared_ptr<const Program> program = *gpus_[0]->Compile(ops);
    bool replayed = false;
    for (int round = 0; round < 6; ++round) {
      std::vector<std::byte> data = Random();
      data[0] = static_cast<std::byte>(round);
      auto from = On(1);  // freed at the end of the round
      EXPECT_TRUE(from->CopyIn(0, data).ok());
      for (int run = 0; run < 3; ++run) {
        const LaunchResult result = Copy(0, *stream, program, *from, *to);
        EXPECT_TRUE(result.status.ok())
            << "round " << round << ", run " << run << ": " << result.status;
        replayed |= result.way == LaunchWay::kGraph;
      }
      EXPECT_EQ(std::memcmp(Contents(*to).data(), data.data(), bytes), 0) << round;
    }
    return replayed;
  }
};

TEST_F(PeerGraphGpuTest, KernelsReadWhatLiesThereNow) { EXPECT_TRUE(Replays(512 << 10)); }

// A graph with such a copy was refused, or crashed, once its memory had been freed.
TEST_F(PeerGraphGpuTest, WhatTheCopyEngineReadsThereIsNotRecorded) {
  EXPECT_FALSE(Replays(kCopiedBytes));
}

TEST_F(PeerGpuTest, ManyThreadsMayAskAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(gpus_[i % 2]->CanReach(*gpus_[1 - i % 2]).ok());
      EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Another backend of the same GPU finds it allowed already.
  auto again = BackendOf(0);
  EXPECT_TRUE(again->CanReach(*gpus_[1]).ok());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(PeerGpuTest, ACpusMemoryIsNotReadNorReadsIt) {
  auto cpu = *CreateCpuBackend({});
  EXPECT_EQ(gpus_[0]->CanReach(*cpu).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(cpu->CanReach(*gpus_[0]).code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
