// Normalize on a device beside the contract suite: the fast kernel against the one that takes
// anything. They add up a row in different orders, so results may be a rounding apart; sums of src
// and an addend are the same bits.

#include <cmath>
#include <cstring>

#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/ops/normalize.h"
#include "kernels/cuda/ops/scale_layout.h"
#include "tests/kernels/contract/scene.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::Bytes;
using contract::Scene;

constexpr ElementType kNormSources[] = {ElementType::kF32, ElementType::kBF16, ElementType::kF16};
constexpr ElementType kNormTargets[] = {ElementType::kF32, ElementType::kBF16, ElementType::kF16,
                                        ElementType::kE4M3};
constexpr int64_t kPadding = 8;  // columns behind each row of dst, which nobody writes

struct NormShape {
  int64_t batch, rows, n;
};

enum class Summed { kNot, kUnkept, kApart, kOverSrc, kOverAddend };

// Rows on the device with poison behind each.
class Lines {
 public:
  Lines(const Bytes& dense, int64_t line_bytes, int64_t row_bytes)
      : lines_(static_cast<int64_t>(dense.size()) / line_bytes),
        line_bytes_(line_bytes),
        row_bytes_(row_bytes),
        before_(lines_ * row_bytes, std::byte{0xff}) {
    for (int64_t line = 0; line < lines_; ++line)
      Move(dense, line_bytes_, before_, row_bytes_, line);
    device_ = DeviceBuffer(before_);
  }

  std::byte* data() const { return device_.data(); }

  // The rows as launches left them, dense; what lies between must be as it was.
  Bytes Download() const {
    const Bytes after = device_.Download();
    Bytes dense(lines_ * line_bytes_), only = before_;
    for (int64_t line = 0; line < lines_; ++line) {
      Move(after, row_bytes_, dense, line_bytes_, line);
      Move(after, row_bytes_, only, row_bytes_, line);
    }
    EXPECT_TRUE(only == after) << "columns behind a row were written";
    return dense;
  }

 private:
  void Move(const Bytes& from, int64_t from_row, Bytes& to, int64_t to_row, int64_t line) const {
    std::memcpy(to.data() + line * to_row, from.data() + line * from_row, line_bytes_);
  }

  int64_t lines_, line_bytes_, row_bytes_;
  Bytes before_;
  DeviceBuffer device_;
};

// What a launch left: values, times their scales, and the scale of each; sums, dense.
struct Norms {
  std::vector<double> values, scales;
  Bytes sums;
};

// Launches on poisoned results, and holds what lies between them to be as it was.
Norms RunNorm(NormalizeArgs args, const NormShape& shape) {
  const int64_t lines = shape.batch * shape.rows, blocks = (shape.n + 127) / 128;
  const int64_t ld = MMajorLeadingDimension(lines), row = shape.n + kPadding;
  const int size = ElementBytes(args.dst_type);
  const Lines dst(Bytes(lines * shape.n * size, std::byte{0xff}), shape.n * size, row * size);
  const DeviceBuffer scales(Bytes(blocks * ld * 4, std::byte{0xff}));
  args.dst = dst.data();
  args.dst_row = row;
  args.dst_batch = shape.rows * row;
  if (args.dst_type == ElementType::kE4M3) {
    args.scales = reinterpret_cast<float*>(scales.data());
    args.scales_row = 1;
    args.scales_block = ld;
    args.scales_batch = shape.rows;
  }
  EXPECT_EQ(LaunchNormalize(args, nullptr), cudaSuccess);

  const Bytes bytes = dst.Download();
  Norms norms;
  norms.values = ReadTensor({.dtype = static_cast<DType>(args.dst_type),
                             .shape = MakeDims({lines, shape.n}),
                             .strides = MakeDims({shape.n, 1})},
                            bytes.data());
  norms.scales.assign(norms.values.size(), 0);
  if (args.scales == nullptr) return norms;
  const Bytes scale_bytes = scales.Download();
  const std::vector<double> scale = ReadTensor(
      {.dtype = DType::kF32, .shape = MakeDims({lines, blocks}), .strides = MakeDims({1, ld})},
      scale_bytes.data());
  for (int64_t i = 0; i < lines * shape.n; ++i) {
    norms.scales[i] = scale[i / shape.n * blocks + i % shape.n / 128];
    norms.values[i] *= norms.scales[i];
  }
  return norms;
}

// What is normalised, dense.
struct Summands {
  Bytes src, addend;  // no bytes: no addend
};

// The same, of sources with a number of columns more than are read. An odd one makes a stride that
// the fast kernel does not take.
Norms RunNorm(NormalizeArgs args, const NormShape& shape, const Summands& given, Summed summed,
              int64_t more) {
  const int size = ElementBytes(args.src_type);
  const auto lines = [&](const Bytes& dense, int64_t row) {
    return Lines(dense, shape.n * size, row * size);
  };
  const int64_t src_row = shape.n + more, addend_row = src_row + 8, sum_row = src_row + 16;
  const Lines src = lines(given.src, src_row), addend = lines(given.addend, addend_row);
  const Lines sum = lines(Bytes(given.addend.size(), std::byte{0xff}), sum_row);
  args.src = src.data();
  args.src_row = src_row;
  args.src_batch = shape.rows * src_row;
  if (summed != Summed::kNot) {
    args.addend = addend.data();
    args.addend_row = addend_row;
    args.addend_batch = shape.rows * addend_row;
  }
  const auto keep = [&](const Lines& in, int64_t row) {
    args.sum = in.data();
    args.sum_row = row;
    args.sum_batch = shape.rows * row;
  };
  if (summed == Summed::kApart) keep(sum, sum_row);
  if (summed == Summed::kOverSrc) keep(src, src_row);
  if (summed == Summed::kOverAddend) keep(addend, addend_row);
  Norms norms = RunNorm(args, shape);
  Bytes after[] = {src.Download(), addend.Download(), sum.Download()};
  if (summed >= Summed::kApart) {
    norms.sums = after[summed == Summed::kApart ? 2 : summed == Summed::kOverSrc ? 0 : 1];
  }
  EXPECT_TRUE(summed == Summed::kOverSrc || after[0] == given.src) << "src was written";
  EXPECT_TRUE(summed == Summed::kOverAddend || after[1] == given.addend) << "addend was written";
  return norms;
}

// The distance of two neighbours in a type, at a value.
double StepAt(ElementType type, double value, double scale) {
  value = std::abs(value);
  if (type == ElementType::kBF16) return value * 0x1p-7;
  if (type == ElementType::kF16) return value * 0x1p-10 + 0x1p-24;
  if (type == ElementType::kE4M3) return value * 0x1p-3 + scale * 0x1p-9;
  return 0;
}

void ExpectFastIsNearAny(ElementType from, ElementType to, bool centered, const NormShape& shape,
                         Summed summed = Summed::kNot) {
  Scene scene;
  const auto random = [&](DType dtype, std::initializer_list<int64_t> extents) {
    return scene.slots()[scene.Random(dtype, MakeDims(extents)).slot];
  };
  const int64_t lines = shape.batch * shape.rows;
  Summands given{.src = random(static_cast<DType>(from), {lines, shape.n})};
  if (summed != Summed::kNot) given.addend = random(static_cast<DType>(from), {lines, shape.n});
  const DeviceBuffer weight(random(DType::kF32, {shape.n})), bias(random(DType::kF32, {shape.n}));
  NormalizeArgs args;
  args.batch = shape.batch;
  args.rows = shape.rows;
  args.n = shape.n;
  args.src_type = from;
  args.dst_type = to;
  args.centered = centered;
  if (scene.Between(0, 3) > 0) args.weight = reinterpret_cast<const float*>(weight.data());
  if (scene.Between(0, 3) > 0) args.bias = reinterpret_cast<const float*>(bias.data());

  const Norms fast = RunNorm(args, shape, given, summed, 0);
  const Norms any = RunNorm(args, shape, given, summed, 1);
  ASSERT_TRUE(fast.sums == any.sums)
      << "from " << static_cast<int>(from) << ", sum " << static_cast<int>(summed) << ", "
      << shape.batch << "x" << shape.rows << "x" << shape.n << ", seed " << scene.seed();
  for (size_t i = 0; i < any.values.size(); ++i) {
    // A bias of up to 1 may cancel what it is added to.
    const double near = (std::abs(any.values[i]) + 2) * 0x1p-16;
    ASSERT_NEAR(fast.values[i], any.values[i],
                near + StepAt(to, std::abs(any.values[i]) + near, any.scales[i]) * 1.01)
        << "from " << static_cast<int>(from) << " to " << static_cast<int>(to) << ", "
        << shape.batch << "x" << shape.rows << "x" << shape.n << " centered " << centered
        << ", element " << i << ", seed " << scene.seed();
    ASSERT_NEAR(fast.scales[i], any.scales[i], any.scales[i] * 0x1p-12 + 0x1p-24) << i;
  }
}

TEST(NormalizeGpuTest, TheFastKernelIsNearTheOneThatTakesAnything) {
  GEMMD_REQUIRE_DEVICE();
  for (ElementType from : kNormSources) {
    for (ElementType to : kNormTargets) {
      for (bool centered : {false, true}) {
        for (const NormShape& shape : {NormShape{1, 1, 8},
                                       {1, 1, 1024},
                                       {1, 1, 8192},
                                       {1, 1, 32768},
                                       {1, 16, 8},
                                       {1, 16, 264},
                                       {2, 8, 4096},
                                       {1, 16, 16384},
                                       {1, 300, 8},
                                       {3, 100, 136},
                                       {1, 300, 1024}}) {
          ExpectFastIsNearAny(from, to, centered, shape);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// More rows than run at once: each thread goes on from row to row, the last of them cut off.
TEST(NormalizeGpuTest, GoesOnToRowsBehindThoseThatRunAtOnce) {
  GEMMD_REQUIRE_DEVICE();
  for (ElementType to : {ElementType::kBF16, ElementType::kE4M3}) {
    for (const NormShape& shape :
         {NormShape{1, 9001, 24}, {2, 4999, 136}, {1, 1601, 2056}, {1, 300, 32768}}) {
      ExpectFastIsNearAny(ElementType::kBF16, to, true, shape);
      if (HasFatalFailure()) return;
    }
  }
}

// Of a row in few threads and in many, and of more rows than run at once.
TEST(NormalizeGpuTest, BothKernelsNormalizeAndKeepTheSameSums) {
  GEMMD_REQUIRE_DEVICE();
  for (ElementType from : kNormSources) {
    for (ElementType to : kNormTargets) {
      for (Summed summed :
           {Summed::kUnkept, Summed::kApart, Summed::kOverSrc, Summed::kOverAddend}) {
        for (const NormShape& shape : {NormShape{1, 1, 8},
                                       {1, 16, 264},
                                       {2, 8, 4096},
                                       {1, 1, 16384},
                                       {3, 100, 136},
                                       {2, 4999, 24}}) {
          ExpectFastIsNearAny(from, to, shape.rows % 2 == 0, shape, summed);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(NormalizeGpuTest, RefusesTypesThatItDoesNotKnow) {
  NormalizeArgs args;
  args.rows = args.n = 16;
  args.src_type = ElementType::kE4M3;
  EXPECT_EQ(LaunchNormalize(args, nullptr), cudaErrorInvalidValue);
  args.src_type = ElementType::kBF16;
  args.dst_type = ElementType::kI8;
  EXPECT_EQ(LaunchNormalize(args, nullptr), cudaErrorInvalidValue);
  args.dst_type = ElementType::kE4M3;  // without scales
  EXPECT_EQ(LaunchNormalize(args, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
