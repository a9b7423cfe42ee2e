// That a program which runs ends when it is told to: between two ops, and within one that takes
// minutes.

#include "kernels/stop.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"

namespace gemmd::kernels::cpu {
namespace {

// Each op here takes minutes, or, where it has to write what it makes, a large part of a second;
// told to stop it is gone in well under a second, and on a busy machine in this.
constexpr absl::Duration kSoon = absl::Minutes(1);

// A view of few bytes that poses a problem of any size.
TensorRef Repeated(int slot, DType dtype, Dims shape) {
  TensorRef tensor{slot, 0, dtype, shape, {}};
  tensor.strides.rank = shape.rank;
  return tensor;
}

MatmulOp Product(DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k) {
  MatmulOp op;
  op.a.values = Repeated(0, dtype, MakeDims({batch, m, k}));
  op.b.values = Repeated(0, dtype, MakeDims({batch, n, k}));
  op.d = Dense(1, DType::kF32, MakeDims({batch, m, n}));
  return op;
}

// By OpenBLAS in place, which takes no view that repeats.
MatmulOp DenseProduct(int64_t m, int64_t n, int64_t k) {
  MatmulOp op;
  op.a.values = Dense(0, DType::kF32, MakeDims({m, k}));
  op.b.values = Dense(1, DType::kF32, MakeDims({n, k}));
  op.d = Dense(2, DType::kF32, MakeDims({m, n}));
  return op;
}

// Every row of b is the same.
MatmulOp FewRows(int64_t m, int64_t n, int64_t k) {
  MatmulOp op = Product(DType::kE4M3, 1, m, n, k);
  op.a.values = Dense(0, DType::kE4M3, MakeDims({m, k}));
  op.b.values = Repeated(2, DType::kE4M3, MakeDims({n, k}));
  op.b.values.strides[1] = 1;
  op.d = Dense(1, DType::kF32, MakeDims({m, n}));
  return op;
}

struct StopCase {
  const char* name;
  Op op;
};

class StopTest : public testing::TestWithParam<StopCase> {
 protected:
  explicit StopTest(int threads = 2) : backend_(*CreateCpuBackend({.threads = threads})) {}

  LaunchResult Run(absl::Span<const Op> ops, Stop& stop, absl::Duration ask_after) {
    std::array<int64_t, 3> sizes = {64, 64, 64};  // by slot
    for (const Op& op : ops) {
      ForEachTensor(op, [&](const TensorRef& tensor, Access) {
        sizes[tensor.slot] = std::max(sizes[tensor.slot], TouchedBytes(tensor)->end);
      });
    }
    for (const int64_t bytes : sizes) {
      memories_.push_back(*backend_->Allocate(bytes, MemoryKind::kDevice));
    }
    Bindings bindings;
    for (const auto& memory : memories_) bindings.slots.push_back(memory->address());
    bindings.stop = &stop;
    auto stream = backend_->CreateStream({});
    absl::Notification done;
    LaunchResult result;
    stream->Launch(*backend_->Compile(ops), std::move(bindings), [&](LaunchResult ended) {
      result = std::move(ended);
      done.Notify();
    });
    absl::SleepFor(ask_after);
    if (ask_after > absl::ZeroDuration()) stop.Ask();
    const absl::Time asked = absl::Now();
    // There is no other way to end the thread that runs the op.
    if (!done.WaitForNotificationWithTimeout(kSoon)) std::abort();
    took_to_stop_ = absl::Now() - asked;
    return result;
  }

  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Memory>> memories_;
  absl::Duration took_to_stop_;
};

TEST_P(StopTest, ALongOpEndsWhenItIsAskedTo) {
  Stop stop;
  const LaunchResult result = Run({GetParam().op}, stop, absl::Milliseconds(20));
  EXPECT_EQ(result.stopped, StopCause::kAsked);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(result.op_seconds.size(), 1u);
  RecordProperty("stopped_after_us", static_cast<int>(took_to_stop_ / absl::Microseconds(1)));
  std::printf("%s: %s\n", GetParam().name, absl::FormatDuration(took_to_stop_).c_str());
}

QuantizeOp Quantized(ScaleGranularity granularity, Dims shape) {
  QuantizeOp op{Repeated(0, DType::kF32, shape), Dense(1, DType::kE4M3, shape), {}, granularity};
  op.scales = Dense(2, DType::kF32, ScaleShape(shape, granularity));
  return op;
}
GatedOp Gated(int64_t rows, int64_t columns) {
  GatedOp op;
  op.src = Repeated(0, DType::kF32, MakeDims({rows, 2 * columns}));
  op.dst = Dense(1, DType::kF32, MakeDims({rows, columns}));
  return op;
}
NormalizeOp Normalized(int64_t rows, int64_t columns) {
  NormalizeOp op;
  op.src = Repeated(0, DType::kF32, MakeDims({rows, columns}));
  op.dst = Dense(1, DType::kF32, MakeDims({rows, columns}));
  op.centered = true;
  return op;
}
CopyOp Transposed(int64_t side) {
  TensorRef src = Dense(0, DType::kI8, MakeDims({side, side}));
  std::swap(src.strides[0], src.strides[1]);
  return {src, Dense(1, DType::kI8, src.shape)};
}

constexpr int64_t kMany = int64_t{1} << 40;

INSTANTIATE_TEST_SUITE_P(
    Ops, StopTest,
    testing::Values(StopCase{"blas", DenseProduct(2048, 2048, 16384)},
                    StopCase{"panel", Product(DType::kBF16, 1, 512, 512, kMany)},
                    StopCase{"panel_batch", Product(DType::kF32, 1 << 17, 8, 8, 1 << 20)},
                    StopCase{"int8", Product(DType::kI8, 1, 64, 64, kMany)},
                    StopCase{"few_rows", FewRows(8, 1 << 22, 4096)},
                    StopCase{"quantize_one_row",
                             Quantized(ScaleGranularity::kPerTensor, MakeDims({1, 1 << 28}))},
                    StopCase{"quantize_blocks",
                             Quantized(ScaleGranularity::kBlock1x128, MakeDims({4, 1 << 26}))},
                    StopCase{"gated", Gated(1 << 13, 1 << 13)},
                    StopCase{"normalize", Normalized(1 << 13, 1 << 13)},
                    StopCase{"normalize_one_row", Normalized(1, 1 << 27)},
                    StopCase{"copy_transposed", Transposed(16384)}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(StopTest, NothingRunsOnceItIsAsked) {
  Stop stop;
  stop.Ask();
  const Op fill = FillOp{Dense(0, DType::kF32, MakeDims({4})), 1};
  const LaunchResult result = Run({fill, fill}, stop, absl::ZeroDuration());
  EXPECT_EQ(result.stopped, StopCause::kAsked);
  EXPECT_TRUE(result.op_seconds.empty());
  EXPECT_EQ(reinterpret_cast<const float*>(memories_[0]->address())[0], 0);
}

TEST_F(StopTest, TheLimitCountsFromTheStart) {
  Stop stop;
  stop.Arm(absl::InfiniteFuture(), absl::Milliseconds(50));
  const Op product = Product(DType::kBF16, 1, 512, 512, kMany);
  const LaunchResult result = Run({product, product}, stop, absl::ZeroDuration());
  EXPECT_EQ(result.stopped, StopCause::kLimit);
  EXPECT_EQ(result.op_seconds.size(), 1u);
  EXPECT_GE(result.device_seconds, 0.05);
}

TEST_F(StopTest, ADeadlineThatPassesFirstIsNamed) {
  Stop stop;
  stop.Arm(absl::Now() + absl::Milliseconds(50), absl::Hours(1));
  const LaunchResult result =
      Run({Product(DType::kBF16, 1, 512, 512, kMany)}, stop, absl::ZeroDuration());
  EXPECT_EQ(result.stopped, StopCause::kDeadline);
}

TEST_F(StopTest, AProgramThatEndsInTimeIsNotStopped) {
  Stop stop;
  stop.Arm(absl::InfiniteFuture(), absl::InfiniteDuration());
  const Op fill = FillOp{Dense(0, DType::kF32, MakeDims({4})), 1};
  const LaunchResult result = Run({fill, fill}, stop, absl::ZeroDuration());
  EXPECT_EQ(result.stopped, StopCause::kNone);
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.op_seconds.size(), 2u);
}

// Work that is cut for the sake of looks gives what it gave before.
TEST_F(StopTest, AProductInBlocksIsTheProduct) {
  // Above what one call to OpenBLAS is given, in every extent.
  constexpr int64_t kM = 150, kN = 1100, kK = 13000;
  MatmulOp op;
  op.a.values = Dense(0, DType::kF32, MakeDims({kM, kK}));
  op.b.values = Dense(1, DType::kF32, MakeDims({kN, kK}));
  op.d = Dense(2, DType::kF32, MakeDims({kM, kN}));
  op.c = op.d;
  op.beta = 2;
  for (const int64_t bytes : {kM * kK * 4, kN * kK * 4, kM * kN * 4}) {
    memories_.push_back(*backend_->Allocate(bytes, MemoryKind::kDevice));
  }
  const auto at = [&](int slot) { return reinterpret_cast<float*>(memories_[slot]->address()); };
  for (int64_t i = 0; i < kM * kK; ++i) at(0)[i] = static_cast<float>(i * 7 % 11) - 5;
  for (int64_t i = 0; i < kN * kK; ++i) at(1)[i] = static_cast<float>(i * 5 % 13) - 6;
  for (int64_t i = 0; i < kM * kN; ++i) at(2)[i] = 3;
  Bindings bindings;
  for (const auto& memory : memories_) bindings.slots.push_back(memory->address());
  auto stream = backend_->CreateStream({});
  absl::Notification done;
  stream->Launch(*backend_->Compile({Op(op)}), bindings, [&](LaunchResult) { done.Notify(); });
  done.WaitForNotification();
  for (const auto& [i, j] :
       {std::pair<int64_t, int64_t>{0, 0}, {149, 1099}, {75, 1023}, {75, 1024}}) {
    double sum = 0;
    for (int64_t k = 0; k < kK; ++k) sum += 1.0 * at(0)[i * kK + k] * at(1)[j * kK + k];
    EXPECT_NEAR(at(2)[i * kN + j], sum + 6, 1) << i << " " << j;
  }
}

}  // namespace
}  // namespace gemmd::kernels::cpu
