// Inline bytes on a device: into programs, and out of them to where replies are sent from.

#include <algorithm>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/backend_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

TEST_F(BackendGpuTest, CarriesInlineBytesOfAnySize) {
  // Below and above what the copy engine takes over, dense and strided, on both kinds of memory, to
  // ordinary memory and to what the device writes by itself.
  auto stream = backend_->CreateStream({});
  for (MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHostShared}) {
    for (int64_t rows : {1, 100, 1000, 9001}) {
      for (int64_t row_stride : {257, 300}) {
        TensorRef tensor{0, 8, DType::kBF16, MakeDims({rows, 257}), MakeDims({row_stride, 1})};
        const auto program = *backend_->Compile(
            {Op(WriteOp{tensor, 0}), Op(ReadOp{tensor, 0}), Op(ReadOp{tensor, 1})});
        auto memory = Allocate(8 + rows * row_stride * 2, kind);
        const std::vector<std::byte> source = RandomBytes(rows * 257 * 2, rows);
        HostBytes pieces(absl::MakeConstSpan(source).first(101));
        pieces.Append(absl::MakeConstSpan(source).subspan(101));
        std::vector<std::byte> target(source.size());
        const auto output = backend_->AllocateOutput(source.size());
        const LaunchResult result =
            Run(*stream, program,
                {{memory->address()}, {pieces}, {absl::MakeSpan(target), output->span()}});
        ASSERT_TRUE(result.status.ok()) << result.status;
        EXPECT_TRUE(target == source) << rows << " rows " << row_stride << " apart";
        EXPECT_TRUE(std::equal(source.begin(), source.end(), output->data(),
                               output->data() + output->size()))
            << rows << " rows " << row_stride << " apart";
      }
    }
  }
}

TEST_F(BackendGpuTest, EachReplayOfAGraphWritesWhereItIsTold) {
  auto stream = backend_->CreateStream({});
  const int64_t count = 100 << 10;
  const TensorRef tensor = Dense(0, DType::kF32, MakeDims({count}));
  const TensorRef copy = Dense(1, DType::kF32, MakeDims({count}));
  const auto program = *backend_->Compile({Op(WriteOp{tensor, 0}), Op(CopyOp{tensor, copy}),
                                           Op(ReadOp{copy, 0}), Op(ReadOp{tensor, 1})});
  auto memory = Allocate(count * 4), other = Allocate(count * 4);
  std::vector<std::vector<std::byte>> sources;
  std::vector<std::unique_ptr<HostMemory>> outputs;
  std::vector<std::vector<std::byte>> heap;
  for (int run = 0; run < 6; ++run) {
    sources.push_back(RandomBytes(count * 4, run));
    outputs.push_back(backend_->AllocateOutput(count * 4));
    heap.emplace_back(count * 4);
    const LaunchResult result = Run(*stream, program,
                                    {{memory->address(), other->address()},
                                     {absl::MakeConstSpan(sources.back())},
                                     {outputs.back()->span(), absl::MakeSpan(heap.back())}});
    ASSERT_TRUE(result.status.ok()) << result.status;
    if (run >= 2) {
      EXPECT_EQ(result.way, LaunchWay::kGraph);
    }
  }
  for (size_t run = 0; run < sources.size(); ++run) {
    EXPECT_TRUE(outputs[run]->span().device_writes);
    EXPECT_TRUE(std::equal(sources[run].begin(), sources[run].end(), outputs[run]->data())) << run;
    EXPECT_TRUE(heap[run] == sources[run]) << run;
  }
}

// A buffer so large is an allocation of its own, and is given back to the driver when it goes.
TEST_F(BackendGpuTest, AGraphOutlivesTheMemoryThatItWasRecordedOn) {
  auto stream = backend_->CreateStream({});
  const int64_t count = 256 << 10, room = int64_t{512} << 20;
  const TensorRef tensor = Dense(0, DType::kF32, MakeDims({count}));
  const TensorRef copy = {0, 256 << 20, DType::kF32, MakeDims({count}), MakeDims({1})};
  const auto program = *backend_->Compile({Op(WriteOp{tensor, 0}), Op(CopyOp{tensor, copy}),
                                           Op(ReadOp{copy, 0}), Op(ReadOp{tensor, 1})});
  bool replayed = false;
  for (int round = 0; round < 4; ++round) {
    auto memory = Allocate(room);
    for (int run = 0; run < 3; ++run) {
      const std::vector<std::byte> source = RandomBytes(count * 4, 4 * round + run);
      std::vector<std::byte> first(source.size()), second(source.size());
      const LaunchResult result = Run(*stream, program,
                                      {{memory->address()},
                                       {absl::MakeConstSpan(source)},
                                       {absl::MakeSpan(first), absl::MakeSpan(second)}});
      ASSERT_TRUE(result.status.ok()) << result.status;
      replayed |= result.way == LaunchWay::kGraph;
      EXPECT_TRUE(first == source && second == source) << "round " << round << ", run " << run;
    }
  }
  EXPECT_TRUE(replayed);
}

TEST_F(BackendGpuTest, OutputsMayOutliveTheBackend) {
  std::vector<std::unique_ptr<HostMemory>> outputs;
  // More than is pinned at once: the rest is ordinary memory.
  for (int i = 0; i < 9; ++i) outputs.push_back(backend_->AllocateOutput(64 << 20));
  EXPECT_TRUE(outputs.front()->span().device_writes);
  EXPECT_FALSE(outputs.back()->span().device_writes);
  outputs.erase(outputs.begin());
  outputs.push_back(backend_->AllocateOutput(64 << 20));
  EXPECT_TRUE(outputs.back()->span().device_writes);
  EXPECT_FALSE(backend_->AllocateOutput(1)->span().device_writes);  // not worth a pinned block
  backend_.reset();
  for (const auto& output : outputs) output->span().data()[0] = std::byte{1};
}

}  // namespace
}  // namespace gemmd::kernels::cuda
