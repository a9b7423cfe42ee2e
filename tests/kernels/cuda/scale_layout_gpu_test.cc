#include <cstring>
#include <random>

#include "kernels/cuda/ops/scale_layout.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

struct Case {
  int64_t batch, rows, k_blocks;
  bool rows_dense;  // src lies along rows instead of k blocks
  int64_t gap;      // floats between src's runs
};

void Check(const Case& c, std::mt19937_64& random) {
  SCOPED_TRACE(testing::Message() << c.batch << " x " << c.rows << " x " << c.k_blocks
                                  << (c.rows_dense ? " along rows" : "") << " gap " << c.gap);
  ScaleLayoutArgs args;
  args.batch = c.batch;
  args.rows = c.rows;
  args.k_blocks = c.k_blocks;
  args.src_row = c.rows_dense ? 1 : c.k_blocks + c.gap;
  args.src_k = c.rows_dense ? c.rows + c.gap : 1;
  args.src_batch = c.rows_dense ? c.k_blocks * args.src_k : c.rows * args.src_row;
  args.dst_ld = MMajorLeadingDimension(c.rows);
  args.dst_batch = c.k_blocks * args.dst_ld + 4;
  std::vector<std::byte> source(c.batch * args.src_batch * sizeof(float));
  for (std::byte& byte : source) byte = static_cast<std::byte>(random());
  std::vector<std::byte> expected(c.batch * args.dst_batch * sizeof(float), std::byte{0xff});
  const DeviceBuffer src(source);
  const DeviceBuffer dst(expected);
  for (int64_t batch = 0; batch < c.batch; ++batch) {
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t k = 0; k < c.k_blocks; ++k) {
        const int64_t from = batch * args.src_batch + row * args.src_row + k * args.src_k;
        const int64_t to = batch * args.dst_batch + k * args.dst_ld + row;
        std::memcpy(&expected[to * 4], &source[from * 4], 4);
      }
    }
  }
  args.src = reinterpret_cast<const float*>(src.data());
  args.dst = reinterpret_cast<float*>(dst.data());
  GEMMD_ASSERT_CUDA(LaunchScaleLayout(args, nullptr));
  EXPECT_TRUE(dst.Download() == expected);
}

TEST(ScaleLayoutGpuTest, TransposesAndLeavesThePaddingAlone) {
  GEMMD_REQUIRE_DEVICE();
  std::mt19937_64 random(std::random_device{}());
  for (int64_t rows : {1, 7, 31, 32, 33, 127, 129, 4096}) {
    for (int64_t k_blocks : {1, 5, 32, 33, 56}) {
      for (bool rows_dense : {false, true}) {
        Check({1, rows, k_blocks, rows_dense, 0}, random);
        Check({3, rows, k_blocks, rows_dense, 3}, random);
      }
    }
  }
}

TEST(ScaleLayoutGpuTest, TakesMoreThanAGridIsHighAndDeep) {
  GEMMD_REQUIRE_DEVICE();
  std::mt19937_64 random(std::random_device{}());
  Check({65540, 2, 1, false, 0}, random);
  Check({1, 1, 65535 * 32 + 5, false, 0}, random);
}

TEST(ScaleLayoutGpuTest, DoesNothingWithoutScales) {
  for (const auto& [rows, k_blocks] : {std::pair<int64_t, int64_t>{0, 3}, {3, 0}}) {
    ScaleLayoutArgs args;
    args.rows = rows;
    args.k_blocks = k_blocks;
    EXPECT_EQ(LaunchScaleLayout(args, nullptr), cudaSuccess);
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
