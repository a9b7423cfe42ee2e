// Programs that run again as graphs, on a device.

#include <time.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/plain_family.h"
#include "kernels/cuda/run/cuda_program.h"
#include "kernels/cuda/run/cuda_stream.h"
#include "kernels/cuda/run/graph.h"
#include "tests/kernels/cuda/device_buffer.h"
#include "tests/kernels/cuda/layers.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr int64_t kGraphRows = 32;
constexpr int64_t kGraphWidth = 512;  // and k
constexpr int64_t kGraphBytes = kGraphRows * kGraphWidth * 2;

absl::StatusOr<std::unique_ptr<Graph>> NoCapture(cudaStream_t, Graph::Queue) {
  return absl::InternalError("not today");
}

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Memory of one binding: x, its quantised values and their scales, the weights and theirs.
struct Buffers {
  explicit Buffers(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto bytes = [&](int64_t count) {
      std::vector<std::byte> values(count);
      for (std::byte& value : values) value = static_cast<std::byte>(random() & 0xb7);  // finite
      return values;
    };
    const std::vector<float> ones(kGraphWidth / 128 * kGraphWidth / 128, 1.0f / 64);
    std::vector<std::byte> scales(ones.size() * 4);
    std::memcpy(scales.data(), ones.data(), scales.size());
    memory.emplace_back(kGraphBytes);
    memory.emplace_back(kGraphRows * kGraphWidth);
    memory.emplace_back(kGraphRows * kGraphWidth / 128 * 4);
    memory.emplace_back(bytes(kGraphWidth * kGraphWidth));
    memory.emplace_back(scales);
    for (const DeviceBuffer& buffer : memory) slots.push_back(buffer.data());
  }
  std::vector<DeviceBuffer> memory;
  std::vector<std::byte*> slots;
};

class GraphGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    GEMMD_ASSERT_CUDA(cudaSetDevice(0));
    GemmPoolOptions options;
    options.prepare_tma = PrepareTma;
    const auto device = TraitsOf(0);
    ASSERT_TRUE(device.ok()) << device.status();
    options.device = *device;
    options.families.push_back(
        std::make_shared<PlainFamily>(std::vector<PlainKernel>{AnyGemmKernel(LaunchAnyGemm)}));
    kernels_.emplace(std::move(options));
    kernels_->others = {"", "quantize", "gated", "convert", "copy", "fill", "write", "read"};
    kernels_->memory_bytes_per_s = 4e12;
  }

  std::shared_ptr<const Program> Compile(const std::vector<Op>& ops) {
    auto program = CudaProgram::Compile(ops, *kernels_);
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }
  // With its input and its result inline.
  std::shared_ptr<const Program> InlineLayers() {
    const TensorRef x = Dense(0, DType::kBF16, MakeDims({kGraphRows, kGraphWidth}));
    std::vector<Op> ops = Layers(kGraphRows, kGraphWidth, 3);
    ops.insert(ops.begin(), WriteOp{x, 0});
    ops.push_back(ReadOp{x, 0});
    return Compile(ops);
  }

  struct Inline {
    explicit Inline(uint64_t seed) : in(kGraphBytes), out(kGraphBytes) {
      std::mt19937_64 random(seed);
      for (size_t i = 0; i < in.size(); ++i) {  // BF16 of magnitude 1 to 2
        in[i] = i % 2 == 0 ? static_cast<std::byte>(random()) : std::byte{0x3f};
        if (i % 2 == 0) in[i] |= std::byte{0x80};
      }
    }
    Bindings Bind(const Buffers& buffers) {
      return {buffers.slots, {absl::MakeConstSpan(in)}, {absl::MakeSpan(out)}};
    }
    std::vector<std::byte> in, out;
  };

  LaunchResult Run(CudaStream& stream, const std::shared_ptr<const Program>& program,
                   Bindings bindings) {
    absl::Notification done;
    LaunchResult result;
    stream.Launch(program, std::move(bindings), [&](LaunchResult r) {
      result = std::move(r);
      done.Notify();
    });
    done.WaitForNotification();
    EXPECT_TRUE(result.status.ok()) << result.status;
    return result;
  }
  // What a program that never ran before gives.
  std::vector<std::byte> ByOps(CudaStream& stream, const Buffers& buffers, uint64_t seed) {
    Inline data(seed);
    const LaunchResult result = Run(stream, InlineLayers(), data.Bind(buffers));
    EXPECT_EQ(result.way, LaunchWay::kOps);
    return data.out;
  }

  Fence fence_{"cuda:0"};
  PinnedPool pinned_{0, fence_};
  std::optional<KernelSet> kernels_;
};

TEST_F(GraphGpuTest, RunsAsAGraphFromTheSecondRunOn) {
  CudaStream stream(0, pinned_, fence_, {});
  Buffers buffers(1);
  const auto program = InlineLayers();
  std::vector<LaunchWay> ways;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Inline data(seed);
    const LaunchResult result = Run(stream, program, data.Bind(buffers));
    ways.push_back(result.way);
    EXPECT_GT(result.device_seconds, 0);
    EXPECT_EQ(result.op_seconds.size(), program->steps().size());
    EXPECT_TRUE(data.out == ByOps(stream, buffers, seed)) << "run " << seed;
  }
  EXPECT_THAT(ways, ElementsAre(LaunchWay::kOps, LaunchWay::kGraph, LaunchWay::kGraph,
                                LaunchWay::kGraph, LaunchWay::kGraph));
}

TEST_F(GraphGpuTest, EveryBindingHasAGraphOfItsOwn) {
  CudaStream stream(0, pinned_, fence_, {});
  const auto program = InlineLayers();
  std::vector<Buffers> bindings;
  for (uint64_t i = 0; i < 3; ++i) bindings.emplace_back(i);
  for (int round = 0; round < 4; ++round) {
    for (size_t i = 0; i < bindings.size(); ++i) {
      Inline data(100 * round + i);
      const LaunchResult result = Run(stream, program, data.Bind(bindings[i]));
      EXPECT_EQ(result.way, round == 0 ? LaunchWay::kOps : LaunchWay::kGraph);
      EXPECT_TRUE(data.out == ByOps(stream, bindings[i], 100 * round + i)) << round << ", " << i;
    }
  }
}

TEST_F(GraphGpuTest, ManyRunsInFlightKeepTheirInlineBytesApart) {
  constexpr int kRuns = 60;
  std::vector<Inline> data;
  std::vector<std::vector<std::byte>> expected;
  std::vector<LaunchWay> ways;
  std::vector<int> order;
  Buffers buffers(1);
  {
    CudaStream stream(0, pinned_, fence_, {});
    for (int i = 0; i < kRuns; ++i) {
      data.emplace_back(i);
      expected.push_back(ByOps(stream, buffers, i));
    }
    const auto program = InlineLayers();
    Inline warm(0);
    Run(stream, program, warm.Bind(buffers));
    for (int i = 0; i < kRuns; ++i) {
      stream.Launch(program, data[i].Bind(buffers), [&, i](LaunchResult result) {
        EXPECT_TRUE(result.status.ok()) << result.status;
        ways.push_back(result.way);
        order.push_back(i);
      });
    }
  }  // waits for what was launched
  EXPECT_THAT(ways, Each(LaunchWay::kGraph));
  for (int i = 0; i < kRuns; ++i) {
    EXPECT_EQ(order[i], i);
    EXPECT_TRUE(data[i].out == expected[i]) << "run " << i;
  }
}

TEST_F(GraphGpuTest, OverlapsSurviveTheRecording) {
  Buffers buffers(1);
  const auto program = Compile(Layers(kGraphRows, kGraphWidth, 20));
  const auto& code = static_cast<const CudaProgram&>(*program);
  EXPECT_EQ(code.scratch_bytes(), 0);
  const auto prepared = code.Prepare(buffers.slots, nullptr);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  cudaStream_t side;
  GEMMD_ASSERT_CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  const auto graph = Graph::Capture(side, [&](cudaStream_t stream) {
    absl::Status status;
    for (size_t i = 0; i < code.steps().size() && status.ok(); ++i) {
      status = code.LaunchStep(i, {buffers.slots, *prepared->launches, nullptr, nullptr, stream});
    }
    return status;
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ((*graph)->nodes(), 40);
  EXPECT_EQ((*graph)->overlaps(), 39);
  GEMMD_ASSERT_CUDA(cudaStreamDestroy(side));
}

TEST_F(GraphGpuTest, AFailedRecordingLeavesTheStreamUsable) {
  Buffers buffers(1);
  cudaStream_t side;
  GEMMD_ASSERT_CUDA(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  const auto fill = [&](cudaStream_t stream) {
    return ToStatus(cudaMemsetAsync(buffers.slots[0], 0, 16, stream), "memset");
  };
  EXPECT_EQ(Graph::Capture(side,
                           [&](cudaStream_t stream) {
                             fill(stream).IgnoreError();
                             return absl::InvalidArgumentError("no");
                           })
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(Graph::Capture(side, [&](cudaStream_t stream) {
                 cudaStreamSynchronize(stream);  // spoils it
                 return fill(stream);
               }).ok());
  cudaGetLastError();
  const auto graph = Graph::Capture(side, fill);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ((*graph)->nodes(), 1);
  GEMMD_ASSERT_CUDA((*graph)->Launch(side));
  GEMMD_ASSERT_CUDA(cudaStreamSynchronize(side));
  GEMMD_ASSERT_CUDA(cudaStreamDestroy(side));
}

TEST_F(GraphGpuTest, RunsOpByOpWhatCannotBeRecorded) {
  CudaStream stream(0, pinned_, fence_, {}, NoCapture);
  Buffers buffers(1);
  const auto program = InlineLayers();
  std::vector<LaunchWay> ways;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Inline data(seed);
    ways.push_back(Run(stream, program, data.Bind(buffers)).way);
    EXPECT_TRUE(data.out == ByOps(stream, buffers, seed)) << "run " << seed;
  }
  EXPECT_THAT(ways, ElementsAre(LaunchWay::kOps, LaunchWay::kCaptureFailed, LaunchWay::kOps,
                                LaunchWay::kOps));
}

// Long enough to be slept for until shortly before its end, which runs as a graph told.
TEST_F(GraphGpuTest, TheEndOfALongProgramIsForecastByTheRunsBefore) {
  constexpr int64_t kValues = int64_t{16} << 20;
  DeviceBuffer memory(kValues * 4);
  const TensorRef tensor = Dense(0, DType::kF32, MakeDims({kValues}));
  std::vector<Op> ops;
  for (int i = 0; i < 64; ++i) ops.push_back(FillOp{tensor, static_cast<double>(i)});
  const auto program = Compile(ops);
  const auto& code = static_cast<const CudaProgram&>(*program);
  EXPECT_GT(program->estimated_seconds(), 500e-6);
  EXPECT_TRUE(code.capturable());
  CudaStream stream(0, pinned_, fence_, {});
  std::vector<std::byte*> slots = {memory.data()};
  EXPECT_EQ(Run(stream, program, {slots, {}, {}}).way, LaunchWay::kOps);
  EXPECT_EQ(code.forecast().usual(), absl::ZeroDuration());
  // A thread that a busy machine wakes late finds the run ended, and learns nothing of it.
  for (int run = 0; run < 100 && code.forecast().usual() == absl::ZeroDuration(); ++run) {
    EXPECT_EQ(Run(stream, program, {slots, {}, {}}).way, LaunchWay::kGraph);
  }
  EXPECT_GT(code.forecast().usual(), absl::ZeroDuration());
}

// 61 layers of four projections, each with its quantisation. Prints what the host pays.
TEST_F(GraphGpuTest, APlanOf244MatmulsIsOneLaunch) {
  CudaStream stream(0, pinned_, fence_, {});
  Buffers buffers(1);
  const auto program = Compile(Layers(kGraphRows, kGraphWidth, 244));
  for (int run = 0; run < 4; ++run) {
    const double before = ThreadSeconds();
    absl::Notification done;
    LaunchResult result;
    stream.Launch(program, {buffers.slots, {}, {}}, [&](LaunchResult r) {
      result = std::move(r);
      done.Notify();
    });
    const double launch = ThreadSeconds() - before;
    done.WaitForNotification();
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.way, run == 0 ? LaunchWay::kOps : LaunchWay::kGraph);
    std::printf("run %d, %s: %.0f us of host time to launch, %.0f us on the device\n", run,
                run == 0   ? "op by op"
                : run == 1 ? "recorded"
                           : "replayed",
                launch * 1e6, result.device_seconds * 1e6);
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
