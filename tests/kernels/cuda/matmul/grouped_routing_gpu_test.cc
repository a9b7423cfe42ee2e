// One grouped matmul and one graph for every routing, on a device: matrices in one tensor and
// apart. Operands are small integers, so that every result is known to the last bit.

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/grouped_problem.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kGroups = 12;
constexpr int64_t kRows = 400;
constexpr int64_t kRoutedN = 384;
constexpr int64_t kRoutedK = 256;
constexpr uint16_t kUnrouted = 0xc0e0;  // -7

using Slots = std::vector<std::vector<std::byte>>;

uint16_t Bf16(int value) {
  const auto exact = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &exact, 4);
  return static_cast<uint16_t>(bits >> 16);
}

class GroupedRoutingGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    auto backend = CreateCudaBackend({.memory_bytes = int64_t{1} << 30, .self_test = false});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
  }

  // The op, its memory with -1, 0 or 1 in the operands and ones as scales, and its results.
  void Make(bool apart, uint32_t seed) {
    op_ = *OpOf({.groups = kGroups,
                 .m = kRows,
                 .n = kRoutedN,
                 .k = kRoutedK,
                 .operands = DType::kE4M3,
                 .out = DType::kBF16,
                 .a_granularity = ScaleGranularity::kBlock1x128,
                 .b_granularity = ScaleGranularity::kBlock128x128,
                 .apart = apart});
    std::mt19937 random(seed);
    Slots slots;
    std::vector<std::vector<int8_t>> values;
    ForEachTensor(Op(op_), [&](const TensorRef& tensor, Access) {
      const int64_t elements = TouchedBytes(tensor)->end / SizeBytes(tensor.dtype);
      slots.resize(std::max<size_t>(slots.size(), tensor.slot + 1));
      values.resize(slots.size());
      std::vector<std::byte>& slot = slots[tensor.slot];
      if (tensor.dtype == DType::kE4M3) {
        constexpr std::byte kCodes[] = {std::byte{0xb8}, std::byte{0}, std::byte{0x38}};
        for (int64_t i = 0; i < elements; ++i) {
          values[tensor.slot].push_back(static_cast<int8_t>(static_cast<int>(random() % 3) - 1));
          slot.push_back(kCodes[values[tensor.slot].back() + 1]);
        }
        return;
      }
      slot.resize(elements * SizeBytes(tensor.dtype));
      const std::vector<float> ones(elements, 1.0f);
      if (tensor.dtype == DType::kF32) std::memcpy(slot.data(), ones.data(), slot.size());
    });
    expected_.assign(kGroups * kRows * kRoutedN, 0);
    for (int64_t g = 0; g < kGroups; ++g) {
      const TensorRef matrix = MatrixOf(op_, g).values;
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t n = 0; n < kRoutedN; ++n) {
          const int8_t* x = &values[op_.a.values.slot][row * kRoutedK];
          const int8_t* y = &values[matrix.slot][matrix.offset_bytes + n * kRoutedK];
          expected_[(g * kRows + row) * kRoutedN + n] =
              Bf16(std::inner_product(x, x + kRoutedK, y, 0));
        }
      }
    }
    memory_.clear();
    bindings_ = Bindings();
    for (const std::vector<std::byte>& slot : slots) {
      auto memory = backend_->Allocate(static_cast<int64_t>(slot.size()), MemoryKind::kDevice);
      ASSERT_TRUE(memory.ok()) << memory.status();
      ASSERT_TRUE((*memory)->CopyIn(0, slot).ok());
      bindings_.slots.push_back((*memory)->address());
      memory_.push_back(*std::move(memory));
    }
  }

  // Numbers of the caller, a poisoned result, the product, and what became of it.
  std::vector<Op> Step() const {
    return {WriteOp{op_.groups, 0}, FillOp{op_.d, -7}, op_, ReadOp{op_.d, 0}};
  }

  LaunchResult Run(Stream& stream, const std::shared_ptr<const Program>& program,
                   const std::vector<int32_t>& numbers, std::vector<uint16_t>& d) {
    d.assign(kRows * kRoutedN, 0);
    Bindings bindings = bindings_;
    if (!numbers.empty()) {
      bindings.inputs = {absl::MakeConstSpan(reinterpret_cast<const std::byte*>(numbers.data()),
                                             numbers.size() * sizeof(int32_t))};
    }
    bindings.outputs = {
        absl::MakeSpan(reinterpret_cast<std::byte*>(d.data()), d.size() * sizeof(uint16_t))};
    absl::Notification done;
    LaunchResult result;
    stream.Launch(program, std::move(bindings), [&](LaunchResult r) {
      result = std::move(r);
      done.Notify();
    });
    done.WaitForNotification();
    return result;
  }

  std::vector<uint16_t> Wanted(const std::vector<int32_t>& offsets) const {
    std::vector<uint16_t> d(kRows * kRoutedN, kUnrouted);
    for (int64_t g = 0; g < kGroups; ++g) {
      const auto begin = expected_.begin() + (g * kRows + offsets[g]) * kRoutedN;
      std::copy(begin, begin + (offsets[g + 1] - offsets[g]) * kRoutedN,
                d.begin() + offsets[g] * kRoutedN);
    }
    return d;
  }

  // Whether element `at` of d was left alone, or is some group's product there: readers of numbers
  // that change may disagree about whose a row is.
  bool IsKnown(int64_t at, uint16_t d) const {
    bool known = d == kUnrouted;
    for (int64_t g = 0; g < kGroups && !known; ++g)
      known = d == expected_[g * kRows * kRoutedN + at];
    return known;
  }

  std::unique_ptr<Backend> backend_;
  GroupedMatmulOp op_;
  std::vector<std::unique_ptr<Memory>> memory_;
  Bindings bindings_;
  std::vector<uint16_t> expected_;  // BF16 of [group, row, n]
};

// Few rows, many, one hot group, none: from a random row on.
std::vector<int32_t> Routing(std::mt19937& random) {
  std::vector<int32_t> rows(kGroups, 0);
  int32_t left = static_cast<int32_t>(random() % (kRows + 1));
  const int32_t first = static_cast<int32_t>(random() % (kRows - left + 1));
  const uint32_t kind = random() % 4;
  if (kind == 0) rows[random() % kGroups] = left;
  for (; kind > 0 && left > 0; --left) ++rows[random() % (kind == 1 ? 3 : kGroups)];
  std::vector<int32_t> offsets = {first};
  for (const int32_t count : rows) offsets.push_back(offsets.back() + count);
  return offsets;
}

// By the kernel for a mean of many rows, and by that for groups of any size.
TEST_F(GroupedRoutingGpuTest, OneGraphServesFiveHundredRoutings) {
  for (const auto& [apart, expected_rows] :
       {std::pair(false, int64_t{0}), {false, kGroups}, {true, int64_t{0}}, {true, kGroups}}) {
    Make(apart, 1);
    op_.expected_rows = expected_rows;
    const auto program = backend_->Compile(Step());
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ((*program)->steps()[2].choice.kernel, "sm90_fp8_grouped");
    const auto stream = backend_->CreateStream({});
    std::mt19937 random(7);
    std::vector<uint16_t> d;
    int graphs = 0;
    for (int i = 0; i < 500; ++i) {
      const std::vector<int32_t> offsets = Routing(random);
      const LaunchResult result = Run(*stream, *program, offsets, d);
      ASSERT_TRUE(result.status.ok()) << result.status;
      graphs += result.way == LaunchWay::kGraph ? 1 : 0;
      ASSERT_TRUE(d == Wanted(offsets))
          << "routing " << i << " apart " << apart << " rows " << expected_rows;
    }
    EXPECT_EQ(graphs, 499);  // all but the first
  }
}

// Streams have scratch memory of their own: what one makes of its table is not the other's.
TEST_F(GroupedRoutingGpuTest, StreamsRunSideBySide) {
  Make(true, 2);
  GroupedMatmulOp turned = op_;
  std::reverse(turned.table.begin(), turned.table.end());
  turned.b = StackOf(turned.table[0], kGroups);
  const auto forward = backend_->Compile(Step());
  std::vector<Op> ops = Step();
  ops[2] = turned;
  const auto backward = backend_->Compile(ops);
  ASSERT_TRUE(forward.ok() && backward.ok());
  // A second result, since both write theirs at once.
  auto other_d = backend_->Allocate(kRows * kRoutedN * 2, MemoryKind::kDevice);
  auto other_numbers = backend_->Allocate((kGroups + 1) * 4, MemoryKind::kDevice);
  ASSERT_TRUE(other_d.ok() && other_numbers.ok());
  Bindings other = bindings_;
  other.slots[op_.d.slot] = (*other_d)->address();
  other.slots[op_.groups.slot] = (*other_numbers)->address();
  const auto one = backend_->CreateStream({}), two = backend_->CreateStream({});
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    const std::vector<int32_t> offsets = Routing(random);
    std::vector<uint16_t> d[2];
    absl::Notification done[2];
    absl::Status status[2];
    for (const int side : {0, 1}) {
      d[side].assign(kRows * kRoutedN, 0);
      Bindings bindings = side == 0 ? bindings_ : other;
      bindings.inputs = {absl::MakeConstSpan(reinterpret_cast<const std::byte*>(offsets.data()),
                                             offsets.size() * sizeof(int32_t))};
      bindings.outputs = {absl::MakeSpan(reinterpret_cast<std::byte*>(d[side].data()),
                                         d[side].size() * sizeof(uint16_t))};
      (side == 0 ? one : two)
          ->Launch(side == 0 ? *forward : *backward, std::move(bindings),
                   [&status, &done, side](LaunchResult result) {
                     status[side] = result.status;
                     done[side].Notify();
                   });
    }
    for (const int side : {0, 1}) {
      done[side].WaitForNotification();
      ASSERT_TRUE(status[side].ok()) << status[side];
    }
    ASSERT_TRUE(d[0] == Wanted(offsets)) << "run " << i;
    std::vector<uint16_t> wanted(kRows * kRoutedN, kUnrouted);
    for (int64_t g = 0; g < kGroups; ++g) {
      const auto begin = expected_.begin() + ((kGroups - 1 - g) * kRows + offsets[g]) * kRoutedN;
      std::copy(begin, begin + (offsets[g + 1] - offsets[g]) * kRoutedN,
                wanted.begin() + offsets[g] * kRoutedN);
    }
    ASSERT_TRUE(d[1] == wanted) << "run " << i;
  }
}

// Somebody writes the offsets, good ones and others, while the device reads them. Whatever it sees,
// an element of the result is some group's product of that row, or was not written.
TEST_F(GroupedRoutingGpuTest, NumbersMayChangeMeanwhile) {
  for (const bool apart : {false, true}) {
    Make(apart, 4);
    auto shared = backend_->Allocate(4096, MemoryKind::kHostShared);
    ASSERT_TRUE(shared.ok()) << shared.status();
    void* const mapped =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, (*shared)->shared_fd(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    bindings_.slots[op_.groups.slot] = (*shared)->address();
    std::atomic<bool> stop = false;
    std::thread writer([&] {
      auto* const numbers = static_cast<volatile int32_t*>(mapped);
      std::mt19937 random(5);
      while (!stop) {
        const std::vector<int32_t> offsets = Routing(random);
        for (int64_t g = 0; g <= kGroups; ++g) {
          numbers[g] = random() % 64 == 0 ? static_cast<int32_t>(random()) : offsets[g];
        }
      }
    });
    const auto program = backend_->Compile({FillOp{op_.d, -7}, op_, ReadOp{op_.d, 0}});
    ASSERT_TRUE(program.ok()) << program.status();
    const auto stream = backend_->CreateStream({});
    std::vector<uint16_t> d;
    int wrong = 0;
    for (int i = 0; i < 200 && wrong == 0; ++i) {
      const LaunchResult result = Run(*stream, *program, {}, d);
      EXPECT_TRUE(result.status.ok() || absl::IsInvalidArgument(result.status)) << result.status;
      // A run that ended so brings nothing back, but what it wrote is there.
      EXPECT_TRUE(memory_[op_.d.slot]
                      ->CopyOut(0, absl::MakeSpan(reinterpret_cast<std::byte*>(d.data()),
                                                  d.size() * sizeof(uint16_t)))
                      .ok());
      for (int64_t at = 0; at < kRows * kRoutedN; ++at) wrong += IsKnown(at, d[at]) ? 0 : 1;
      EXPECT_EQ(wrong, 0) << "run " << i << " apart " << apart;
    }
    stop = true;
    writer.join();
    munmap(mapped, 4096);
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
