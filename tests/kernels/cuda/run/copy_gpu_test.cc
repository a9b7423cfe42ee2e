// Copies between the device and memory of the host, among ops whose results they carry.

#include <cstring>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/backend_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

struct Case {
  DType dtype;
  int64_t rows, columns;
  int64_t stride;  // of rows in the host's memory, in elements
  int64_t offset;  // there and on the device, in bytes
};

// Around the size from which the copy engine moves them (1 MiB), of any alignment, dense or not.
constexpr Case kCases[] = {
    {DType::kF32, 1, 100, 100, 0},          {DType::kF32, 512, 511, 511, 4},
    {DType::kF32, 512, 512, 512, 16},       {DType::kI8, 1, (1 << 20) + 1, (1 << 20) + 1, 1},
    {DType::kBF16, 1000, 4099, 4099, 2},    {DType::kBF16, 1000, 4099, 4100, 2},
    {DType::kE4M3, 3, 5 << 20, 5 << 20, 3}, {DType::kF32, 1 << 20, 5, 5, 0},
    {DType::kF32, 3000, 1000, 1024, 0},
};

// Memory of the host goes, and other memory lies where it was: a graph of before copies from
// neither.
TEST_F(BackendGpuTest, CopiesFromMemoryThatCameToLieWhereOtherWas) {
  auto stream = backend_->CreateStream({});
  constexpr int64_t kBytes = 4 << 20;
  const auto bytes = [](int slot) {
    return TensorRef{slot, 0, DType::kI8, MakeDims({kBytes}), MakeDims({1})};
  };
  const auto alone = *backend_->Compile({Op(CopyOp{bytes(0), bytes(1)})});
  const auto two =
      *backend_->Compile({Op(CopyOp{bytes(0), bytes(1)}), Op(CopyOp{bytes(1), bytes(2)})});
  auto near = Allocate(kBytes), behind = Allocate(kBytes);
  std::byte* before = nullptr;
  int same = 0;
  for (uint64_t round = 0; round < 6; ++round) {
    auto host = Allocate(kBytes, MemoryKind::kHostShared);
    same += host->address() == before;
    before = host->address();
    const std::vector<std::byte> source = RandomBytes(kBytes, round);
    ASSERT_TRUE(host->CopyIn(0, source).ok());
    for (const auto& [program, end] : {std::pair{alone, near.get()}, {two, behind.get()}}) {
      for (int run = 0; run < 3; ++run) {  // from the second on as a graph
        const LaunchResult result =
            Run(*stream, program, {{before, near->address(), behind->address()}, {}, {}});
        ASSERT_TRUE(result.status.ok()) << result.status;
        std::vector<std::byte> target(kBytes);
        ASSERT_TRUE(end->CopyOut(0, absl::MakeSpan(target)).ok());
        ASSERT_TRUE(target == source) << "round " << round << ", run " << run;
      }
    }
  }
  EXPECT_GT(same, 0);  // or this has shown nothing
}

// By way of the host: a is copied within the device, to the host, back, and within the device.
TEST_F(BackendGpuTest, CopiesOverPcieAreInOrderWithWhatIsAroundThem) {
  auto stream = backend_->CreateStream({});
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.rows << " rows of " << c.columns << ", stride " << c.stride
                                    << ", offset " << c.offset);
    const Dims shape = MakeDims({c.rows, c.columns});
    const auto dense = [&](int slot) {
      return TensorRef{slot, c.offset, c.dtype, shape, MakeDims({c.columns, 1})};
    };
    TensorRef host = dense(2);
    host.strides = MakeDims({c.stride, 1});
    const auto program =
        *backend_->Compile({Op(CopyOp{dense(0), dense(1)}), Op(CopyOp{dense(1), host}),
                            Op(CopyOp{host, dense(3)}), Op(CopyOp{dense(3), dense(4)})});
    const int64_t bytes = c.rows * c.columns * SizeBytes(c.dtype);
    const int64_t spread = c.offset + c.rows * c.stride * SizeBytes(c.dtype);
    std::vector<std::unique_ptr<Memory>> memories;
    std::vector<std::byte*> slots;
    for (int slot = 0; slot < 5; ++slot) {
      memories.push_back(
          Allocate(spread, slot == 2 ? MemoryKind::kHostShared : MemoryKind::kDevice));
      slots.push_back(memories.back()->address());
    }
    for (int run = 0; run < 4; ++run) {  // from the second on as a graph
      const std::vector<std::byte> source = RandomBytes(bytes, run);
      ASSERT_TRUE(memories[0]->CopyIn(c.offset, source).ok());
      const LaunchResult result = Run(*stream, program, {slots, {}, {}});
      ASSERT_TRUE(result.status.ok()) << result.status;
      std::vector<std::byte> target(bytes);
      ASSERT_TRUE(memories[4]->CopyOut(c.offset, absl::MakeSpan(target)).ok());
      ASSERT_TRUE(target == source) << "run " << run;
    }
    // Nothing but the tensor was written, and of the host's rows not what lies between them.
    const std::vector<std::byte> there = Contents(*memories[2]);
    const int64_t row = c.columns * SizeBytes(c.dtype);
    for (int64_t at = 0; at < spread; ++at) {
      const int64_t in_row = (at - c.offset) % (c.stride * SizeBytes(c.dtype));
      if (at >= c.offset && in_row < row) continue;
      ASSERT_EQ(there[at], std::byte{0}) << at;
    }
  }
}

// A kernel's stores to the host, which leave no gaps: 4-byte elements, from any type.
TEST_F(BackendGpuTest, ConvertsIntoTheHostsMemory) {
  auto stream = backend_->CreateStream({});
  for (const int64_t count : {1, 3, 4, 1000, 100003}) {
    const TensorRef source = Dense(0, DType::kI8, MakeDims({count}));
    const TensorRef target = Dense(1, DType::kF32, MakeDims({count}));
    const auto program = *backend_->Compile({Op(ConvertOp{source, target})});
    auto from = Allocate(count), to = Allocate(count * 4 + 4, MemoryKind::kHostShared);
    const std::vector<std::byte> bytes = RandomBytes(count, count);
    ASSERT_TRUE(from->CopyIn(0, bytes).ok());
    const LaunchResult result = Run(*stream, program, {{from->address(), to->address()}, {}, {}});
    ASSERT_TRUE(result.status.ok()) << result.status;
    const std::vector<std::byte> there = Contents(*to);
    for (int64_t i = 0; i <= count; ++i) {
      float seen;
      std::memcpy(&seen, &there[4 * i], 4);
      ASSERT_EQ(seen, i == count ? 0 : static_cast<float>(static_cast<int8_t>(bytes[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
