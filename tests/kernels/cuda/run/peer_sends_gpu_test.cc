// Matmuls whose results lie on another GPU: those that the copy engine takes there, whole or in
// pieces, and those that the kernel stores there. Either has the bits of one that stays.

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "kernels/cuda/run/cuda_program.h"
#include "tests/kernels/cuda/layers.h"
#include "tests/kernels/cuda/two_gpus.h"

namespace gemmd::kernels::cuda {
namespace {

struct Size {
  int64_t m, n, k;
  constexpr int64_t d_bytes() const { return 2 * m * n; }
};

constexpr Size kSmall = {96, 512, 256};  // its kernel stores across
constexpr Size kWhole = {512, 3584, 8192};
constexpr Size kShallow = {2048, 4096, 64};  // its copy takes longer than it
constexpr Size kLarge = {8320, 4224, 4096};  // more than a piece may have
static_assert(kSmall.d_bytes() < CudaProgram::kFewestSentBytes);
static_assert(kWhole.d_bytes() >= CudaProgram::kFewestSentBytes);
static_assert(kLarge.d_bytes() > CudaProgram::kMostSentBytes);

class PeerSendsGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why_not = WhyNotTwoGpus(); !why_not.empty()) GTEST_SKIP() << why_not;
    for (int i : {0, 1}) {
      gpus_.push_back(BackendOf(i));
      streams_.push_back(gpus_[i]->CreateStream({}));
    }
    for (int i : {0, 1}) ASSERT_TRUE(gpus_[i]->CanReach(*gpus_[1 - i]).ok());
  }
  void TearDown() override { streams_.clear(); }

  std::unique_ptr<Memory> On(int gpu, int64_t bytes) {
    auto memory = gpus_[gpu]->Allocate(bytes, MemoryKind::kDevice);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *std::move(memory);
  }
  // BF16 numbers from -1 to 1.
  std::unique_ptr<Memory> Random(int gpu, int64_t elements) {
    std::vector<uint16_t> numbers(elements);
    for (uint16_t& number : numbers) {
      number = static_cast<uint16_t>((random_() & 0x807f) | (0x3c00 + (random_() % 4) * 0x80));
    }
    auto memory = On(gpu, 2 * elements);
    EXPECT_TRUE(memory
                    ->CopyIn(0, {reinterpret_cast<std::byte*>(numbers.data()),
                                 static_cast<size_t>(2 * elements)})
                    .ok());
    return memory;
  }
  static std::vector<std::byte> Contents(const Memory& memory) {
    std::vector<std::byte> bytes(memory.size_bytes());
    EXPECT_TRUE(memory.CopyOut(0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }
  static MatmulOp Product(const Size& size, int a, int b, int d) {
    return {.a = {.values = Dense(a, DType::kBF16, MakeDims({size.m, size.k}))},
            .b = {.values = Dense(b, DType::kBF16, MakeDims({size.n, size.k}))},
            .d = Dense(d, DType::kBF16, MakeDims({size.m, size.n}))};
  }
  static CopyOp Copy(int64_t bytes, int from, int to) {
    const auto all = [&](int slot) { return Dense(slot, DType::kF32, MakeDims({bytes / 4})); };
    return {all(from), all(to)};
  }
  std::shared_ptr<const Program> Compile(int gpu, const std::vector<Op>& ops) {
    auto program = gpus_[gpu]->Compile(ops);
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }
  // Queues it on a GPU's stream, or on one that a test has added, and answers by `ends_`.
  void Launch(int stream, const std::shared_ptr<const Program>& program, Bindings bindings) {
    auto& end = ends_.emplace_back(std::make_unique<absl::Notification>());
    streams_[stream]->Launch(program, std::move(bindings), [&end = *end](LaunchResult result) {
      EXPECT_TRUE(result.status.ok()) << result.status;
      EXPECT_GT(result.device_seconds, 0);
      end.Notify();
    });
  }
  void AwaitAll() {
    for (const auto& end : ends_) end->WaitForNotification();
    ends_.clear();
  }

  std::mt19937 random_{static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed())};
  std::vector<std::unique_ptr<Backend>> gpus_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<absl::Notification>> ends_;
};

TEST_F(PeerSendsGpuTest, WhatIsStoredThereHasTheBitsOfWhatStays) {
  for (const Size& size : {kSmall, kWhole, kShallow, kLarge}) {
    auto a = Random(0, size.m * size.k), b = Random(0, size.n * size.k);
    auto near = On(0, size.d_bytes()), far = On(1, size.d_bytes());
    const auto product = Compile(0, {Product(size, 0, 1, 2)});
    for (int run = 0; run < 3; ++run) {
      ASSERT_TRUE(far->CopyIn(0, std::vector<std::byte>(size.d_bytes())).ok());
      for (const Memory* d : {near.get(), far.get()}) {
        Launch(0, product, {.slots = {a->address(), b->address(), d->address()}});
      }
      AwaitAll();
      EXPECT_TRUE(Contents(*far) == Contents(*near)) << "m=" << size.m << " run " << run;
    }
  }
}

TEST_F(PeerSendsGpuTest, BiasAndWhatIsAddedAreWithIt) {
  for (const Size& size : {kSmall, kWhole, kShallow}) {
    auto a = Random(0, size.m * size.k), b = Random(0, size.n * size.k);
    auto c = Random(0, size.m * size.n), bias = Random(0, size.n);
    auto near = On(0, size.d_bytes()), far = On(1, size.d_bytes());
    MatmulOp op = Product(size, 0, 1, 2);
    op.c = Dense(3, DType::kBF16, MakeDims({size.m, size.n}));
    op.beta = 2;
    op.bias = Dense(4, DType::kBF16, MakeDims({size.n}));
    const auto product = Compile(0, {op});
    for (const Memory* d : {near.get(), far.get()}) {
      Launch(0, product,
             {.slots = {a->address(), b->address(), d->address(), c->address(), bias->address()}});
    }
    AwaitAll();
    EXPECT_TRUE(Contents(*far) == Contents(*near)) << "m=" << size.m;
  }
}

// Some of one program, and of programs that are queued at once: each place of the other GPU has
// what was stored there last, whoever took it there.
TEST_F(PeerSendsGpuTest, TheLastOfManyIsWhatIsThere) {
  auto a = Random(0, kWhole.m * kWhole.k), b = Random(0, kWhole.n * kWhole.k);
  auto other = Random(0, kWhole.n * kWhole.k);
  auto near = On(0, kWhole.d_bytes()), near_other = On(0, kWhole.d_bytes());
  std::vector<std::unique_ptr<Memory>> far;
  for (int i = 0; i < 3; ++i) far.push_back(On(1, kWhole.d_bytes()));
  // Its few rows are stored by the kernel, over what was sent before.
  Size few = kWhole;
  few.m = 64;
  std::vector<Op> ops;
  for (int i = 0; i < 3; ++i) ops.push_back(Product(kWhole, 0, 1, 3 + i));
  for (int i = 0; i < 2; ++i) ops.push_back(Product(kWhole, 0, 2, 3 + i));
  ops.push_back(Product(few, 0, 2, 5));
  const auto many = Compile(0, ops);
  for (int run = 0; run < 20; ++run) {
    Launch(0, many,
           {.slots = {a->address(), b->address(), other->address(), far[0]->address(),
                      far[1]->address(), far[2]->address()}});
  }
  const auto product = Compile(0, {Product(kWhole, 0, 1, 2)});
  Launch(0, product, {.slots = {a->address(), b->address(), near->address()}});
  Launch(0, product, {.slots = {a->address(), other->address(), near_other->address()}});
  Launch(0, Compile(0, {Product(few, 0, 1, 2)}),
         {.slots = {a->address(), other->address(), near->address()}});
  AwaitAll();
  EXPECT_TRUE(Contents(*far[0]) == Contents(*near_other));
  EXPECT_TRUE(Contents(*far[1]) == Contents(*near_other));
  EXPECT_TRUE(Contents(*far[2]) == Contents(*near));
}

TEST_F(PeerSendsGpuTest, ACopyBehindItReadsWhatWasSent) {
  auto a = Random(0, kWhole.m * kWhole.k), b = Random(0, kWhole.n * kWhole.k);
  auto near = On(0, kWhole.d_bytes()), back = On(0, kWhole.d_bytes());
  auto far = On(1, kWhole.d_bytes());
  const auto program = Compile(
      0, {Product(kWhole, 0, 1, 2), Copy(kWhole.d_bytes(), 2, 4), Product(kWhole, 0, 1, 3)});
  Launch(0, program,
         {.slots = {a->address(), b->address(), far->address(), near->address(), back->address()}});
  AwaitAll();
  EXPECT_TRUE(Contents(*back) == Contents(*near));
}

// The other GPU goes on at the mark: what is in front of it is there, whatever comes behind it.
TEST_F(PeerSendsGpuTest, AMarkInTheMiddleIsSetWhenWhatIsInFrontHasArrived) {
  auto a = Random(0, kWhole.m * kWhole.k), b = Random(0, kWhole.n * kWhole.k);
  auto near = On(0, kWhole.d_bytes()), far = On(1, kWhole.d_bytes());
  auto taken = On(1, kWhole.d_bytes());
  const auto program = Compile(0, {Product(kWhole, 0, 1, 2), Product(kWhole, 0, 1, 3)});
  const auto take = Compile(1, {Copy(kWhole.d_bytes(), 0, 1)});
  const auto clear = Compile(1, {FillOp{Dense(0, DType::kF32, MakeDims({kWhole.d_bytes() / 4}))}});
  ASSERT_TRUE(gpus_[0]->makes_marks());
  for (int run = 0; run < 10; ++run) {
    for (const Memory* memory : {far.get(), taken.get()}) {
      Launch(1, clear, {.slots = {memory->address()}});
    }
    AwaitAll();
    const std::shared_ptr<Mark> mark = *gpus_[0]->MakeMark();
    Launch(0, program,
           {.slots = {a->address(), b->address(), far->address(), near->address()},
            .marks = {{0, mark}}});
    Launch(1, take, {.slots = {far->address(), taken->address()}, .after = {mark}});
    AwaitAll();
    ASSERT_TRUE(Contents(*taken) == Contents(*near)) << run;
  }
}

// Two streams of the other GPU, each behind its own mark of one run: what it waits for is there.
TEST_F(PeerSendsGpuTest, EachOfTwoMarksIsSetWhenWhatIsInFrontOfItHasArrived) {
  auto a = Random(0, kWhole.m * kWhole.k), b = Random(0, kWhole.n * kWhole.k);
  auto near = On(0, kWhole.d_bytes());
  std::vector<std::unique_ptr<Memory>> far, taken;
  for (int i = 0; i < 2; ++i) {
    far.push_back(On(1, kWhole.d_bytes()));
    taken.push_back(On(1, kWhole.d_bytes()));
    streams_.push_back(gpus_[1]->CreateStream({}));
  }
  const auto program =
      Compile(0, {Product(kWhole, 0, 1, 2), Product(kWhole, 0, 1, 3), Product(kWhole, 0, 1, 4)});
  const auto take = Compile(1, {Copy(kWhole.d_bytes(), 0, 1)});
  const auto clear = Compile(1, {FillOp{Dense(0, DType::kF32, MakeDims({kWhole.d_bytes() / 4}))}});
  for (int run = 0; run < 10; ++run) {
    for (int i : {0, 1}) {
      Launch(1, clear, {.slots = {far[i]->address()}});
      Launch(1, clear, {.slots = {taken[i]->address()}});
    }
    AwaitAll();
    const std::shared_ptr<Mark> first = *gpus_[0]->MakeMark(), second = *gpus_[0]->MakeMark();
    Launch(0, program,
           {.slots = {a->address(), b->address(), far[0]->address(), far[1]->address(),
                      near->address()},
            .marks = {{0, first}, {1, second}}});
    // The later one's stream is asked first: it does not hold the other.
    Launch(2, take, {.slots = {far[1]->address(), taken[1]->address()}, .after = {second}});
    Launch(3, take, {.slots = {far[0]->address(), taken[0]->address()}, .after = {first}});
    AwaitAll();
    for (int i : {0, 1}) ASSERT_TRUE(Contents(*taken[i]) == Contents(*near)) << run << ' ' << i;
  }
}

// The kernel in front of it on its own GPU ends long before, so that nothing but the mark holds it.
TEST_F(PeerSendsGpuTest, AKernelBehindAMarkWaitsForItHoweverEarlyItMayStart) {
  auto a = Random(0, kWhole.m * kWhole.k), b = Random(0, kWhole.n * kWhole.k);
  auto near = On(0, kWhole.d_bytes()), far = On(1, kWhole.d_bytes());
  auto taken = On(1, kWhole.d_bytes()), other = On(1, kWhole.d_bytes());
  const auto program = Compile(0, {Product(kWhole, 0, 1, 3), Product(kWhole, 0, 1, 3),
                                   Product(kWhole, 0, 1, 3), Product(kWhole, 0, 1, 2)});
  const auto take = Compile(1, {Copy(kWhole.d_bytes(), 0, 1)});
  const auto clear = Compile(1, {FillOp{Dense(0, DType::kF32, MakeDims({kWhole.d_bytes() / 4}))}});
  for (int run = 0; run < 20; ++run) {
    for (const Memory* memory : {far.get(), taken.get()}) {
      Launch(1, clear, {.slots = {memory->address()}});
    }
    AwaitAll();
    const std::shared_ptr<Mark> mark = *gpus_[0]->MakeMark();
    Launch(0, program,
           {.slots = {a->address(), b->address(), far->address(), near->address()},
            .marks = {{3, mark}}});
    Launch(1, clear, {.slots = {other->address()}});
    Launch(1, take, {.slots = {far->address(), taken->address()}, .after = {mark}});
    AwaitAll();
    ASSERT_TRUE(Contents(*taken) == Contents(*near)) << run;
  }
}

// Whose run shares the SMs with what waits for it.
TEST_F(PeerSendsGpuTest, AKernelBehindAMarkOfItsOwnGpuWaitsForIt) {
  auto a = Random(0, kWhole.m * kWhole.k), b = Random(0, kWhole.n * kWhole.k);
  auto near = On(0, kWhole.d_bytes()), there = On(0, kWhole.d_bytes());
  auto taken = On(0, kWhole.d_bytes()), other = On(0, kWhole.d_bytes());
  streams_.push_back(gpus_[0]->CreateStream({}));
  const std::vector<Op> products(4, Product(kWhole, 0, 1, 2));
  const auto program = Compile(0, products);
  const auto take = Compile(0, {Copy(kWhole.d_bytes(), 0, 1)});
  const auto clear = Compile(0, {FillOp{Dense(0, DType::kF32, MakeDims({kWhole.d_bytes() / 4}))}});
  Launch(0, program, {.slots = {a->address(), b->address(), near->address()}});
  for (int run = 0; run < 10; ++run) {
    for (const Memory* memory : {there.get(), taken.get()}) {
      Launch(2, clear, {.slots = {memory->address()}});
    }
    AwaitAll();
    const std::shared_ptr<Mark> mark = *gpus_[0]->MakeMark();
    Launch(0, program,
           {.slots = {a->address(), b->address(), there->address()}, .marks = {{3, mark}}});
    Launch(2, clear, {.slots = {other->address()}});
    Launch(2, take, {.slots = {there->address(), taken->address()}, .after = {mark}});
    AwaitAll();
    ASSERT_TRUE(Contents(*taken) == Contents(*near)) << run;
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
