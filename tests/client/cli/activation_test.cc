#include "client/cli/numerics/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gemmd::cli {
namespace {

TEST(ActivationTest, EachNameIsItsNumber) {
  EXPECT_EQ(ActivationNamed("none"), Activation::kNone);
  EXPECT_EQ(ActivationNamed("relu"), Activation::kRelu);
  EXPECT_EQ(ActivationNamed("silu"), Activation::kSilu);
  EXPECT_EQ(ActivationNamed("gelu_tanh"), Activation::kGeluTanh);
  EXPECT_EQ(ActivationNamed("gelu_erf"), Activation::kGeluErf);
  EXPECT_EQ(ActivationNamed("relu_squared"), Activation::kReluSquared);
}

TEST(ActivationTest, IsItsFormula) {
  for (double x : {-4.0, -1.0, -0.25, 0.0, 0.5, 3.0}) {
    EXPECT_EQ(Activated(Activation::kNone, x), x);
    EXPECT_EQ(Activated(Activation::kRelu, x), std::fmax(x, 0));
    EXPECT_NEAR(Activated(Activation::kSilu, x), x / (1 + std::exp(-x)), 1e-15);
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
    EXPECT_NEAR(Activated(Activation::kGeluTanh, x), x / 2 * (1 + std::tanh(u)), 1e-14);
    EXPECT_NEAR(Activated(Activation::kGeluErf, x), x / 2 * (1 + std::erf(x / std::sqrt(2))),
                1e-14);
    EXPECT_EQ(Activated(Activation::kReluSquared, x), x < 0 ? 0 : x * x);
  }
}

TEST(ActivationTest, KeepsNaNAndTakesInfinityToItsLimit) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (Activation activation : {Activation::kRelu, Activation::kSilu, Activation::kGeluTanh,
                                Activation::kGeluErf, Activation::kReluSquared}) {
    EXPECT_TRUE(std::isnan(Activated(activation, std::nan(""))));
    EXPECT_EQ(Activated(activation, kInfinity), kInfinity);
    EXPECT_EQ(Activated(activation, -kInfinity), 0);
  }
}

}  // namespace
}  // namespace gemmd::cli
