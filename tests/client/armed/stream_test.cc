// Ringing from streams, on a driver whose GPUs are threads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <thread>

#include "client/armed/copy_kernel.h"
#include "client/armed/slot.h"
#include "tests/client/armed/fake_cuda.h"
#include "tests/client/armed/fake_daemon.h"

namespace gemmd::armed {
namespace {

using testing::HasSubstr;

constexpr int kPatienceMs = 20'000;
constexpr char kGpu0[] = "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0";

class StreamTest : public testing::Test {
 protected:
  std::shared_ptr<Region> Open() {
    Outcome why;
    std::shared_ptr<Region> region = Region::Open(daemon_.Parts(), why);
    EXPECT_TRUE(why.ok()) << why.message;
    return region;
  }

  // In and out of the daemon's program: out = in + 1.
  alignas(16) std::array<int64_t, 8> in_ = {};
  alignas(16) std::array<int64_t, 8> out_ = {};
  int32_t code_ = 0;
  FakeDaemon daemon_{[this](uint32_t) {
    for (size_t i = 0; i < in_.size(); ++i) out_[i] = in_[i] + 1;
    return code_;
  }};
  CUstream_st* stream_ = FakeCudaStream(0);
};

uint64_t AddressOf(const void* data) { return reinterpret_cast<uint64_t>(data); }

TEST_F(StreamTest, AStreamHandsOverAndTakesBackWithoutTheHost) {
  daemon_.StartPoller(/*sleeps=*/false);
  Slot slot(Open(), 0, {.rung_by_stream = true, .gpu_uuid = kGpu0});
  std::array<int64_t, 8> x = {1, 2, 3}, y = {};
  for (int i = 0; i < 100; ++i) {
    const Outcome called = slot.CallOn(
        stream_, {AddressOf(in_.data()), AddressOf(i % 2 == 0 ? x.data() : y.data()), 64},
        {AddressOf(i % 2 == 0 ? y.data() : x.data()), AddressOf(out_.data()), 64});
    ASSERT_TRUE(called.ok()) << called.message;
  }
  ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
  EXPECT_EQ(x[0], 101);
  EXPECT_EQ(x[2], 103);
  EXPECT_EQ(daemon_.runs(), 100);
}

TEST_F(StreamTest, AKernelRingsAndHandsOverWhatIsAlignedAndSmall) {
  daemon_.StartPoller(/*sleeps=*/false);
  Slot slot(Open(), 0, {.rung_by_stream = true, .gpu_uuid = kGpu0});
  alignas(16) std::array<int64_t, 10> x = {41}, y = {};
  const auto call = [&](uint64_t from, uint64_t bytes) {
    const int before = FakeCudaKernels(), copies = FakeCudaCopies();
    const Outcome called = slot.CallOn(stream_, {AddressOf(in_.data()), from, bytes},
                                       {AddressOf(y.data()), AddressOf(out_.data()), 64});
    EXPECT_TRUE(called.ok()) << called.message;
    EXPECT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
    EXPECT_EQ(FakeCudaKernels() - before, 1);
    return FakeCudaCopies() - copies - 1;  // the result's is one
  };
  EXPECT_EQ(call(AddressOf(x.data()), 64), 0);
  EXPECT_EQ(y[0], 42);
  EXPECT_EQ(call(AddressOf(&x[1]), 64), 1) << "not at a multiple of 16 bytes";
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(call(AddressOf(x.data()), 8), 1) << "no multiple of 16 bytes";
  EXPECT_EQ(y[0], 42);
  EXPECT_EQ(daemon_.runs(), 3);
}

TEST_F(StreamTest, FillsWhatACallLacksBeforeItRings) {
  daemon_.StartPoller(/*sleeps=*/false);
  Slot slot(Open(), 0, {.rung_by_stream = true, .gpu_uuid = kGpu0});
  alignas(16) std::array<int64_t, 8> x = {41, 42}, y = {};
  in_[1] = 5;
  ASSERT_TRUE(slot.CallOn(stream_, {AddressOf(in_.data()), AddressOf(x.data()), 16},
                          {AddressOf(y.data()), AddressOf(out_.data()), 64}, 16)
                  .ok());
  ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
  EXPECT_THAT(std::span(in_).first(4), testing::ElementsAre(41, 42, -1, -1));
  EXPECT_EQ(y[0], 42);
}

// The word that the last run set stays until a ring takes it back, so that nothing stands between a
// wait and the work behind it.
TEST_F(StreamTest, EveryKindOfRingTakesTheLastDoneWordBack) {
  daemon_.StartPoller(/*sleeps=*/false);
  Slot slot(Open(), 0, {.rung_by_stream = true, .gpu_uuid = kGpu0});
  alignas(16) std::array<int64_t, 8> x = {};
  int64_t expected = 0;
  const auto check = [&](const char* how) {
    ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
    EXPECT_EQ(out_[0], ++expected) << how;
    x[0] = in_[0] = expected;
  };
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(slot.CallOn(stream_, {AddressOf(in_.data()), AddressOf(x.data()), 64}, {}).ok());
    check("by the kernel");
    ASSERT_TRUE(slot.CallOn(stream_, {}, {}).ok());
    check("by the kernel that copies nothing");
    ASSERT_TRUE(slot.RingOn(stream_).ok());
    ASSERT_TRUE(slot.WaitOn(stream_).ok());
    check("by RingOn");
    ASSERT_TRUE(slot.Ring().ok());
    ASSERT_TRUE(slot.Wait(20).ok());
    check("by the host");
  }
  EXPECT_EQ(daemon_.runs(), 80);
}

TEST_F(StreamTest, ACaptureHoldsTheKernelThatRings) {
  daemon_.StartPoller(/*sleeps=*/false);
  Slot slot(Open(), 0, {.rung_by_stream = true, .gpu_uuid = kGpu0});
  alignas(16) std::array<int64_t, 8> x = {}, y = {};
  const int before = FakeCudaKernels();
  FakeCudaCapture(stream_, true);
  ASSERT_TRUE(slot.CallOn(stream_, {AddressOf(in_.data()), AddressOf(x.data()), 64},
                          {AddressOf(y.data()), AddressOf(out_.data()), 64})
                  .ok());
  FakeCudaCapture(stream_, false);
  EXPECT_EQ(FakeCudaKernels() - before, 1);
  for (int i = 0; i < 100; ++i) {
    x[0] = i;
    FakeCudaReplay(stream_);
    ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
    ASSERT_EQ(y[0], i + 1);
  }
}

TEST(CopyKernelTest, TakesAsFewThreadsAsCopyAllInOneRound) {
  EXPECT_EQ(CopyThreads(1), 128u);
  EXPECT_EQ(CopyThreads(128 * kCopyCtas * kChunksAtOnce), 128u);
  EXPECT_EQ(CopyThreads(128 * kCopyCtas * kChunksAtOnce + 1), 160u);
  EXPECT_EQ(CopyThreads(kMostCopyBytes / kCopyChunkBytes), 1024u);
}

TEST_F(StreamTest, ACapturedRingAndWaitAreReplayed) {
  daemon_.StartPoller(/*sleeps=*/false);
  Slot slot(Open(), 5, {.rung_by_stream = true, .gpu_uuid = kGpu0});
  FakeCudaCapture(stream_, true);
  ASSERT_TRUE(slot.RingOn(stream_).ok());
  ASSERT_TRUE(slot.WaitOn(stream_).ok());
  FakeCudaCapture(stream_, false);
  for (int i = 0; i < 500; ++i) FakeCudaReplay(stream_);
  ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
  EXPECT_EQ(daemon_.runs(), 500);
  ASSERT_TRUE(slot.Ring().ok());  // and the host may ring between
  EXPECT_TRUE(slot.Wait(20).ok());
}

TEST_F(StreamTest, TheErrorOfARunIsTheNextCallsAndThatOnceOnly) {
  daemon_.StartPoller(/*sleeps=*/false);
  Slot slot(Open(), 0, {.rung_by_stream = true});
  code_ = 3;
  ASSERT_TRUE(slot.CallOn(stream_, {}, {}).ok());
  ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
  code_ = 0;
  const Outcome told = slot.RingOn(stream_);
  EXPECT_EQ(told.code, Code::kInvalidArgument);
  EXPECT_THAT(told.message, HasSubstr("FAKE"));
  EXPECT_TRUE(slot.RingOn(stream_).ok());
  EXPECT_TRUE(slot.WaitOn(stream_).ok());
  ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
}

TEST_F(StreamTest, AFailureBehindWhichOthersRanIsToldToo) {
  daemon_.StartPoller(/*sleeps=*/false);
  Slot slot(Open(), 0, {.rung_by_stream = true});
  code_ = 3;
  // Neither call knows how the other ends: both are queued before the stream begins.
  std::atomic<bool> queued = false;
  FakeCudaCall(
      stream_,
      [](void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
      },
      &queued);
  ASSERT_TRUE(slot.CallOn(stream_, {}, {}).ok());
  FakeCudaCall(
      stream_, [](void* code) { *static_cast<int32_t*>(code) = 0; }, &code_);
  ASSERT_TRUE(slot.CallOn(stream_, {}, {}).ok());
  queued = true;
  ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
  const Outcome told = slot.RingOn(stream_);
  EXPECT_EQ(told.code, Code::kInternal);
  EXPECT_THAT(told.message, HasSubstr("1 of the runs before failed"));
  EXPECT_TRUE(slot.CallOn(stream_, {}, {}).ok());
  ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
}

TEST_F(StreamTest, StreamsThatMayNotRingAreRefused) {
  daemon_.StartPoller(/*sleeps=*/false);
  const std::shared_ptr<Region> region = Open();
  Slot other_gpu(region, 0, {.rung_by_stream = true, .gpu_uuid = "GPU-another"});
  const Outcome refused = other_gpu.RingOn(stream_);
  EXPECT_EQ(refused.code, Code::kFailedPrecondition);
  EXPECT_THAT(refused.message, HasSubstr(std::string("the stream is of ") + kGpu0));

  Slot by_host(region, 1, {});
  EXPECT_THAT(by_host.RingOn(stream_).message, HasSubstr("rung_by_stream"));

  Slot slot(region, 2, {.rung_by_stream = true});
  EXPECT_THAT(slot.WaitOn(stream_).message, HasSubstr("RingOn first"));
  EXPECT_THAT(slot.RingOn(nullptr).message, HasSubstr("without a CUDA context"));
  ASSERT_TRUE(slot.RingOn(stream_).ok());
  EXPECT_THAT(slot.RingOn(stream_).message, HasSubstr("wait for it first"));
  EXPECT_THAT(slot.Wait(0).message, HasSubstr("no run of the host's"));
  EXPECT_TRUE(slot.WaitOn(stream_).ok());
  ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
}

TEST_F(StreamTest, StreamsOfTwoGpusRingByTheirOwnAddresses) {
  daemon_.StartPoller(/*sleeps=*/false);
  const std::shared_ptr<Region> region = Open();
  CUstream_st* other = FakeCudaStream(1);
  Slot slot(region, 0, {.rung_by_stream = true});  // on a CPU device: any GPU may ring
  for (CUstream_st* stream : {stream_, other, stream_}) {
    ASSERT_TRUE(slot.CallOn(stream, {}, {}).ok());
    ASSERT_TRUE(FakeCudaSettled(stream, kPatienceMs));
  }
  EXPECT_EQ(daemon_.runs(), 3);
}

TEST_F(StreamTest, TheMemoryIsRegisteredOncePerGpuAndLetGo) {
  const int before = FakeCudaRegistrations();
  {
    const std::shared_ptr<Region> region = Open();
    EXPECT_TRUE(region->Prepare(kGpu0).ok());
    EXPECT_TRUE(region->Prepare(kGpu0).ok());
    EXPECT_EQ(FakeCudaRegistrations(), before + 1);
    EXPECT_THAT(region->Prepare("GPU-none").message,
                HasSubstr("does not see GPU-none among its 2"));
  }
  EXPECT_EQ(FakeCudaRegistrations(), before);
}

// Garbage of an earlier session is collected while somebody captures.
TEST_F(StreamTest, TheMemoryIsRegisteredAndLetGoBesideACapture) {
  const int before = FakeCudaRegistrations();
  CUstream_st* const captured = FakeCudaStream(1);
  FakeCudaCapture(captured, true);
  {
    const std::shared_ptr<Region> region = Open();
    EXPECT_TRUE(region->Prepare(kGpu0).ok());
    EXPECT_EQ(FakeCudaRegistrations(), before + 1);
  }
  EXPECT_EQ(FakeCudaRegistrations(), before);
  FakeCudaCapture(captured, false);
}

TEST_F(StreamTest, EveryWaitOfAStreamEndsWithTheSession) {
  const std::shared_ptr<Region> region = Open();  // nobody polls
  Slot slot(region, 0, {.rung_by_stream = true});
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(slot.CallOn(stream_, {}, {}).ok());
  daemon_.EndSession();
  ASSERT_TRUE(FakeCudaSettled(stream_, kPatienceMs));
  EXPECT_EQ(slot.CallOn(stream_, {}, {}).code, Code::kUnavailable);
}

}  // namespace
}  // namespace gemmd::armed
