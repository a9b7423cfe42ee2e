#include "client/cli/numerics/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace gemmd::cli {
namespace {

using files::DType;

const std::byte* Raw(const void* data) { return static_cast<const std::byte*>(data); }

// D = A B^T in FP32 by the plainest loops, with everything that a VerifyProblem points to.
struct Product {
  int64_t batch, m, n, k;
  std::vector<float> a, b, d;

  Product(int64_t batch, int64_t m, int64_t n, int64_t k) : batch(batch), m(m), n(n), k(k) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> any(-1, 1);
    a.resize(batch * m * k);
    b.resize(batch * n * k);
    for (float& x : a) x = any(random);
    for (float& x : b) x = any(random);
    d.resize(batch * m * n);
    for (int64_t t = 0; t < batch; ++t) {
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          float sum = 0;
          for (int64_t l = 0; l < k; ++l) sum += a[(t * m + i) * k + l] * b[(t * n + j) * k + l];
          d[(t * m + i) * n + j] = sum;
        }
      }
    }
  }

  VerifyProblem problem() const {
    return {
        .batch = batch,
        .m = m,
        .n = n,
        .k = k,
        .a = {.values = Raw(a.data()), .rows = m, .k = k, .batch_stride = m * k, .row_stride = k},
        .b = {.values = Raw(b.data()), .rows = n, .k = k, .batch_stride = n * k, .row_stride = k},
        .d = {DType::kF32, Raw(d.data())}};
  }
};

TEST(VerifyTest, AcceptsARightProductOfOddExtents) {
  for (int64_t n : {1, 7, 8, 9, 31}) {
    const Product product(2, 13, n, 37);
    const VerifyReport report = Verify(product.problem());
    EXPECT_TRUE(report.ok);
    EXPECT_LT(report.relative_error, 1e-6);
    EXPECT_GT(report.relative_error, 0);
    EXPECT_EQ(report.rows_checked, 26);
    EXPECT_EQ(report.rows_total, 26);
  }
}

TEST(VerifyTest, RefusesOneWrongElement) {
  for (size_t at : {size_t{0}, size_t{13 * 9 - 1}, size_t{2 * 13 * 9 - 1}}) {
    Product product(2, 13, 9, 37);
    product.d[at] += 1;
    const VerifyReport report = Verify(product.problem());
    EXPECT_FALSE(report.ok);
    EXPECT_NEAR(report.max_abs_error, 1, 1e-4);
  }
}

TEST(VerifyTest, RefusesAnAllZeroAndATransposedResult) {
  Product product(1, 16, 16, 64);
  std::vector<float> right = product.d;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) product.d[i * 16 + j] = right[j * 16 + i];
  }
  EXPECT_FALSE(Verify(product.problem()).ok);
  std::fill(product.d.begin(), product.d.end(), 0.0f);
  EXPECT_FALSE(Verify(product.problem()).ok);
}

TEST(VerifyTest, TakesBAsRowMajorKn) {
  Product product(1, 5, 6, 7);
  std::vector<float> kn(6 * 7);
  for (int j = 0; j < 6; ++j) {
    for (int l = 0; l < 7; ++l) kn[l * 6 + j] = product.b[j * 7 + l];
  }
  VerifyProblem problem = product.problem();
  problem.b.values = Raw(kn.data());
  problem.b.row_stride = 1;
  problem.b.k_stride = 6;
  EXPECT_TRUE(Verify(problem).ok);
}

TEST(VerifyTest, AppliesAlphaBetaBiasAndRelu) {
  Product product(1, 5, 6, 7);
  std::vector<float> c(30, 2.0f), bias = {1, -1, 2, -2, 3, -3};
  for (int i = 0; i < 30; ++i) {
    product.d[i] = std::max(0.0f, 0.5f * product.d[i] + 3.0f * c[i] - 6.0f + bias[i % 6]);
  }
  for (float& x : c) x = 2.0f;
  VerifyProblem problem = product.problem();
  problem.alpha = 0.5;
  problem.beta = 3;
  problem.c = HostTensor{DType::kF32, Raw(c.data())};
  for (float& x : bias) x -= 6.0f;
  problem.bias = HostTensor{DType::kF32, Raw(bias.data())};
  problem.activation = Activation::kRelu;
  EXPECT_TRUE(Verify(problem).ok);
  problem.activation = Activation::kNone;
  EXPECT_FALSE(Verify(problem).ok);
}

TEST(VerifyTest, SamplesRowsOfALargeProblem) {
  const Product product(2, 64, 16, 16);
  const VerifyReport report = Verify(product.problem(), {.max_macs = 10 * 16 * 16, .seed = 3});
  EXPECT_TRUE(report.ok);
  EXPECT_LE(report.rows_checked, 10);
  EXPECT_GE(report.rows_checked, 5);
  EXPECT_EQ(report.rows_total, 128);
}

TEST(VerifyTest, NonFiniteMustMatch) {
  Product product(1, 4, 4, 4);
  product.a[0] = std::numeric_limits<float>::quiet_NaN();
  VerifyReport report = Verify(product.problem());
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.nonfinite_wrong, 4);
  for (int j = 0; j < 4; ++j) product.d[j] = std::numeric_limits<float>::quiet_NaN();
  report = Verify(product.problem());
  EXPECT_TRUE(report.ok);
  EXPECT_EQ(report.nonfinite_right, 4);  // said, or errors of 0 would be all there is to see
  product.d[9] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Verify(product.problem()).nonfinite_wrong, 1);
}

TEST(VerifyTest, HalfOverflowIsInfinite) {
  const std::vector<float> a = {300}, b = {300};
  const uint16_t infinity = 0x7c00, largest = 0x7bff;
  VerifyProblem problem = {.m = 1,
                           .n = 1,
                           .k = 1,
                           .a = {.values = Raw(a.data()), .rows = 1, .k = 1, .row_stride = 1},
                           .b = {.values = Raw(b.data()), .rows = 1, .k = 1, .row_stride = 1},
                           .d = {DType::kF16, Raw(&infinity)}};
  EXPECT_TRUE(Verify(problem).ok);
  problem.d.data = Raw(&largest);
  EXPECT_FALSE(Verify(problem).ok);
}

TEST(VerifyTest, GrantsCancellationItsRounding) {
  // 1 + 2^-24 - 1 in FP32 is 0 or 2^-24, depending on the order: both are right.
  const std::vector<float> a = {1, std::ldexp(1.0f, -24), -1}, b = {1, 1, 1};
  const float d = 0;
  const VerifyProblem problem = {.m = 1,
                                 .n = 1,
                                 .k = 3,
                                 .a = {.values = Raw(a.data()), .rows = 1, .k = 3, .row_stride = 3},
                                 .b = {.values = Raw(b.data()), .rows = 1, .k = 3, .row_stride = 3},
                                 .d = {DType::kF32, Raw(&d)}};
  EXPECT_TRUE(Verify(problem).ok);
}

TEST(OperandTest, ScalesApplyToTheirBlocks) {
  const int64_t rows = 130, k = 129;
  const std::vector<int8_t> ones(rows * k, 1);
  const auto value = [&](Granularity granularity, const std::vector<float>& scales, int64_t row,
                         int64_t column) {
    std::vector<double> out(k);
    DequantizeRow({.dtype = DType::kI8,
                   .values = Raw(ones.data()),
                   .rows = rows,
                   .k = k,
                   .row_stride = k,
                   .granularity = granularity,
                   .scales = scales.data()},
                  0, row, out);
    return out[column];
  };
  EXPECT_EQ(ScaleCount(Granularity::kBlock1x128, rows, k), 260);
  EXPECT_EQ(ScaleCount(Granularity::kBlock128x128, rows, k), 4);
  EXPECT_EQ(value(Granularity::kPerTensor, {5}, 129, 128), 5);
  std::vector<float> scales(260);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(i);
  EXPECT_EQ(value(Granularity::kPerRow, scales, 77, 3), 77);
  EXPECT_EQ(value(Granularity::kBlock1x128, scales, 77, 127), 154);
  EXPECT_EQ(value(Granularity::kBlock1x128, scales, 77, 128), 155);
  EXPECT_EQ(value(Granularity::kBlock128x128, scales, 127, 128), 1);
  EXPECT_EQ(value(Granularity::kBlock128x128, scales, 128, 127), 2);
}

}  // namespace
}  // namespace gemmd::cli
