// The backend on a device: what the contract suite does not ask of it.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/contract/backend_executor.h"
#include "tests/kernels/contract/matmul_check.h"
#include "tests/kernels/cuda/backend_fixture.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StatusCode;

TEST_F(BackendGpuTest, TellsWhatTheDeviceIs) {
  const DeviceInfo& info = backend_->info();
  EXPECT_EQ(info.name, "cuda:0");
  EXPECT_EQ(info.architecture, "sm_90");
  EXPECT_EQ(info.memory_bytes, kLimit);
  EXPECT_GT(info.peak_flops[static_cast<size_t>(DType::kF32)], 20e12);
  EXPECT_GT(info.peak_flops[static_cast<size_t>(DType::kE4M3)], 1000e12);
  EXPECT_GT(info.memory_bytes_per_s, 1e12);
  EXPECT_GT(backend_->kernels().size(), 10u);
}

TEST_F(BackendGpuTest, MemoryStartsAsZerosAlsoWhenUsedBefore) {
  for (MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHostShared}) {
    for (int64_t size : {int64_t{1}, int64_t{255}, int64_t{65537}, int64_t{16} << 20,
                         (int64_t{16} << 20) + 1, int64_t{100} << 20}) {
      for (int round = 0; round < 2; ++round) {
        auto memory = Allocate(size, kind);
        EXPECT_EQ(memory->size_bytes(), size);
        EXPECT_EQ(memory->kind(), kind);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->address()) % 256, 0u);
        const std::vector<std::byte> bytes = Contents(*memory);
        ASSERT_TRUE(
            std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }))
            << size << " bytes, round " << round;
        ASSERT_TRUE(memory->CopyIn(0, std::vector<std::byte>(size, std::byte{0xab})).ok());
      }
    }
  }
}

TEST_F(BackendGpuTest, CopiesInAndOutAtAnyOffset) {
  constexpr int64_t kSize = (int64_t{21} << 20) + 13;  // several slots, the last one partly
  const std::vector<std::byte> source = RandomBytes(kSize - 100, 1);
  for (MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHostShared}) {
    auto memory = Allocate(kSize, kind);
    ASSERT_TRUE(memory->CopyIn(77, source).ok());
    const std::vector<std::byte> all = Contents(*memory);
    EXPECT_EQ(all[76], std::byte{0});
    EXPECT_TRUE(std::equal(source.begin(), source.end(), all.begin() + 77));
    EXPECT_EQ(all[77 + source.size()], std::byte{0});
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    for (int64_t offset : {int64_t{101}, int64_t{-1}, kSize + 1, kMax, -kMax}) {
      EXPECT_EQ(memory->CopyIn(offset, source).code(), StatusCode::kOutOfRange) << offset;
    }
    EXPECT_TRUE(memory->CopyIn(kSize, {}).ok());
  }
}

// Also where more copies meet than there are slots.
TEST_F(BackendGpuTest, CopiesPinNoMemoryOfTheirOwn) {
  const std::vector<std::byte> source = RandomBytes(int64_t{21} << 20, 3);
  const int64_t pinned = backend_->pinned_bytes();
  EXPECT_GT(pinned, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t) {
    threads.emplace_back([&] {
      auto memory = Allocate(static_cast<int64_t>(source.size()));
      ASSERT_TRUE(memory->CopyIn(0, source).ok());
      EXPECT_EQ(Contents(*memory), source);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(backend_->pinned_bytes(), pinned);
}

TEST_F(BackendGpuTest, GathersSourcesOneBehindTheOther) {
  // Slots and sources end at different places; some sources are empty, one is longer than a slot.
  const std::vector<std::byte> bytes = RandomBytes((int64_t{9} << 20) + 1, 2);
  std::vector<absl::Span<const std::byte>> sources;
  size_t at = 0;
  for (size_t size : {size_t{1}, size_t{0}, size_t{65536}, size_t{5} << 20, bytes.size()}) {
    sources.push_back(absl::MakeConstSpan(bytes).subspan(at, size));  // up to the end at most
    at += sources.back().size();
  }
  sources.emplace_back();
  ASSERT_EQ(at, bytes.size());
  for (MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHostShared}) {
    auto memory = Allocate(static_cast<int64_t>(bytes.size()) + 3, kind);
    ASSERT_TRUE(memory->Gather(3, sources).ok());
    const std::vector<std::byte> all = Contents(*memory);
    EXPECT_EQ(all[2], std::byte{0});
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), all.begin() + 3));
    EXPECT_EQ(memory->Gather(4, sources).code(), StatusCode::kOutOfRange);
  }
}

TEST_F(BackendGpuTest, CopiesFromManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t) {  // more than there are slots
    threads.emplace_back([&, t] {
      const std::vector<std::byte> source = RandomBytes((int64_t{9} << 20) + t, t);
      auto memory = Allocate(source.size());
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(memory->CopyIn(0, source).ok());
        EXPECT_TRUE(Contents(*memory) == source);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(BackendGpuTest, ChargesWhatItHandsOut) {
  EXPECT_EQ(backend_->Allocate(0, MemoryKind::kDevice).status().code(),
            StatusCode::kInvalidArgument);
  auto most = Allocate(kLimit - 1000);
  EXPECT_EQ(backend_->Allocate(1001, MemoryKind::kDevice).status().code(),
            StatusCode::kResourceExhausted);
  Allocate(1000);
  most.reset();
  Allocate(kLimit);
}

TEST_F(BackendGpuTest, ReturnsRealExhaustionAsAStatus) {
  auto backend = CreateCudaBackend({.memory_bytes = int64_t{1} << 50});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->Allocate(int64_t{1} << 45, MemoryKind::kDevice).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE((*backend)->Allocate(1 << 20, MemoryKind::kDevice).ok());  // and goes on
}

TEST_F(BackendGpuTest, PiecesOfASlabDoNotOverlap) {
  std::vector<std::unique_ptr<Memory>> memories;
  std::mt19937 random(3);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 60; ++i) memories.push_back(Allocate(1 + random() % (3 << 20)));
    for (size_t i = 0; i < memories.size(); ++i) {
      const std::vector<std::byte> mark(memories[i]->size_bytes(), static_cast<std::byte>(i));
      ASSERT_TRUE(memories[i]->CopyIn(0, mark).ok());
    }
    for (size_t i = 0; i < memories.size(); ++i) {
      for (std::byte b : Contents(*memories[i])) ASSERT_EQ(b, static_cast<std::byte>(i));
    }
    std::shuffle(memories.begin(), memories.end(), random);
    memories.resize(memories.size() / 2);
  }
}

TEST_F(BackendGpuTest, KernelsReachSharedMemory) {
  auto shared = Allocate(1 << 20, MemoryKind::kHostShared);
  const int fd = shared->shared_fd();
  ASSERT_GE(fd, 0);
  auto stream = backend_->CreateStream({});
  ASSERT_TRUE(Run(*stream, Fill(1 << 18, 2.5), {{shared->address()}, {}, {}}).status.ok());
  void* mapped = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(static_cast<float*>(mapped)[(1 << 18) - 1], 2.5f);
  munmap(mapped, 1 << 20);
}

TEST_F(BackendGpuTest, ImportsSealedFilesOnly) {
  const int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  EXPECT_EQ(backend_->ImportShared(fd, 8000).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  auto memory = backend_->ImportShared(fd, 8000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  auto stream = backend_->CreateStream({});
  ASSERT_TRUE(Run(*stream, Fill(2000, -1), {{(*memory)->address()}, {}, {}}).status.ok());
  float last = 0;
  ASSERT_EQ(pread(fd, &last, 4, 7996), 4);
  EXPECT_EQ(last, -1);
  close(fd);
}

TEST_F(BackendGpuTest, NeverRunsOnTheCallersThread) {
  auto memory = Allocate(64);
  auto stream = backend_->CreateStream({});
  absl::Notification done;
  std::thread::id ran_on;
  stream->Launch(Fill(16, 2), {{memory->address()}, {}, {}}, [&](LaunchResult result) {
    EXPECT_TRUE(result.status.ok()) << result.status;
    ran_on = std::this_thread::get_id();
    done.Notify();
  });
  done.WaitForNotification();
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST_F(BackendGpuTest, WaitsOnTheCallersThreadWhenIdleAndTheProgramIsSmall) {
  auto memory = Allocate(256 << 20);
  auto stream = backend_->CreateStream({.inline_below = absl::Milliseconds(1)});
  const Bindings bindings{{memory->address()}, {}, {}};
  const auto small = Fill(16, 2);
  Run(*stream, small, bindings);  // the kernel's first use loads it
  const std::thread::id here = std::this_thread::get_id();
  int waited_for = 0;
  // Others on the GPU may make any one run longer than a caller waits.
  const absl::Time end = absl::Now() + absl::Seconds(30);
  while (waited_for == 0 && absl::Now() < end) {
    absl::Notification done;
    stream->LaunchAndWait(small, bindings, [&](LaunchResult result) {
      EXPECT_TRUE(result.status.ok()) << result.status;
      waited_for += std::this_thread::get_id() == here;
      done.Notify();
    });
    done.WaitForNotification();
  }
  EXPECT_GT(waited_for, 0);

  // Not past what is in flight, nor when the program is large.
  std::vector<int> order;
  absl::Notification last;
  const auto large = Fill(64 << 20, 1);
  stream->Launch(large, bindings, [&](LaunchResult) { order.push_back(0); });
  stream->LaunchAndWait(small, bindings, [&](LaunchResult) { order.push_back(1); });
  stream->LaunchAndWait(large, bindings, [&](LaunchResult) {
    order.push_back(2);
    last.Notify();
  });
  last.WaitForNotification();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST_F(BackendGpuTest, CompletesOnceEachInLaunchOrder) {
  auto memory = Allocate(256 << 20);
  auto stream = backend_->CreateStream({});
  const auto large = Fill(64 << 20, 1);
  const auto small = Fill(16, 2);
  const Bindings bindings{{memory->address()}, {}, {}};
  std::vector<int> order;  // only done touches it, one at a time
  absl::Notification last;
  for (int i = 0; i < 200; ++i) {
    // A launch that is refused takes its turn like the others.
    const bool bad = i % 7 == 3;
    stream->Launch(i % 20 == 0 ? large : small, bad ? Bindings() : bindings,
                   [&, i, bad](LaunchResult result) {
                     EXPECT_EQ(result.status.ok(), !bad) << result.status;
                     order.push_back(i);
                     if (i == 199) last.Notify();
                   });
  }
  last.WaitForNotification();
  ASSERT_EQ(order.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[i], i);
}

TEST_F(BackendGpuTest, LaunchDoesNotWaitForTheDevice) {
  auto memory = Allocate(1 << 30);
  auto stream = backend_->CreateStream({});
  const auto program = Fill(256 << 20, 1);  // 0.3 ms each
  const Bindings bindings{{memory->address()}, {}, {}};
  Run(*stream, program, bindings);
  std::atomic<int> completed = 0;
  for (int i = 0; i < 100; ++i) {
    stream->Launch(program, bindings, [&](LaunchResult) { ++completed; });
  }
  EXPECT_LT(completed, 100);
  stream.reset();  // waits for what was launched
  EXPECT_EQ(completed, 100);
}

TEST_F(BackendGpuTest, LaunchesFromWithinDoneQueueBehind) {
  auto memory = Allocate(64);
  auto stream = backend_->CreateStream({});
  const auto program = Fill(16, 1);
  const Bindings bindings{{memory->address()}, {}, {}};
  absl::Notification second_done;
  bool first_returned = false;
  stream->Launch(program, bindings, [&](LaunchResult) {
    stream->Launch(program, bindings, [&](LaunchResult) {
      EXPECT_TRUE(first_returned);
      second_done.Notify();
    });
    first_returned = true;
  });
  second_done.WaitForNotification();
}

TEST_F(BackendGpuTest, ReportsTimesForEveryOp) {
  auto memory = Allocate(1 << 30);
  auto stream = backend_->CreateStream({});
  for (int64_t count : {int64_t{16}, int64_t{256} << 20}) {  // shared out, and timed one by one
    const Op fill = FillOp{Dense(0, DType::kF32, MakeDims({count})), 1};
    const auto program = *backend_->Compile({fill, fill, fill});
    const absl::Time before = absl::Now();
    const LaunchResult result = Run(*stream, program, {{memory->address()}, {}, {}});
    ASSERT_TRUE(result.status.ok()) << result.status;
    ASSERT_EQ(result.op_seconds.size(), 3u);
    EXPECT_EQ(result.ops_timed, count > 16);
    double sum = 0;
    for (float seconds : result.op_seconds) {
      EXPECT_GT(seconds, 0);
      sum += seconds;
    }
    EXPECT_NEAR(sum, result.device_seconds, 0.02 * result.device_seconds);
    EXPECT_GE(result.started, before);
    EXPECT_LE(result.started, absl::Now());
  }
}

TEST_F(BackendGpuTest, ManyStreamsRunOneProgramAtOnce) {
  const Dims shape = MakeDims({120, 120});
  MatmulOp op;
  op.a.values = Dense(0, DType::kF32, shape);
  op.b.values = Dense(1, DType::kF32, shape);
  op.d = Dense(2, DType::kF32, shape);
  const auto program =
      *backend_->Compile({Op(FillOp{op.a.values, 1}), Op(FillOp{op.b.values, 2}), Op(op)});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto stream = backend_->CreateStream({});
      std::vector<std::unique_ptr<Memory>> memories;
      Bindings bindings;
      for (int i = 0; i < 3; ++i) {
        memories.push_back(Allocate(120 * 120 * 4));
        bindings.slots.push_back(memories.back()->address());
      }
      for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(Run(*stream, program, bindings).status.ok());
        float last = 0;
        EXPECT_TRUE(memories[2]
                        ->CopyOut((120 * 120 - 1) * 4,
                                  absl::MakeSpan(reinterpret_cast<std::byte*>(&last), 4))
                        .ok());
        EXPECT_EQ(last, 240);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gemmd::kernels::cuda
