#include "kernels/cpu/ops/convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/contract/scene.h"

namespace gemmd::kernels::cpu {
namespace {

using contract::DecodeReference;
using contract::EncodeReference;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

uint32_t Encode(DType dtype, float value) {
  std::byte storage[4] = {};
  FromF32(dtype, &value, 1, storage);
  uint32_t code = 0;
  std::memcpy(&code, storage, sizeof(code));
  return code;
}

float Decode(DType dtype, uint32_t code) {
  std::byte storage[4];
  std::memcpy(storage, &code, sizeof(code));
  float value = 0;
  ToF32(dtype, storage, 1, &value);
  return value;
}

int64_t NumCodes(DType dtype) { return int64_t{1} << (8 * SizeBytes(dtype)); }

class ConvertTest : public testing::TestWithParam<DType> {};

TEST_P(ConvertTest, DecodesEveryCode) {
  for (int64_t code = 0; code < NumCodes(GetParam()); ++code) {
    const double expected = DecodeReference(GetParam(), static_cast<uint32_t>(code));
    const float actual = Decode(GetParam(), static_cast<uint32_t>(code));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << code;
    } else {
      ASSERT_EQ(actual, expected) << code;
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << code;
    }
  }
}

TEST_P(ConvertTest, EncodesEveryValueBackToItsCode) {
  for (int64_t i = 0; i < NumCodes(GetParam()); ++i) {
    const uint32_t code = static_cast<uint32_t>(i);
    const float value = Decode(GetParam(), code);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(Decode(GetParam(), Encode(GetParam(), value)))) << code;
    } else if (GetParam() == DType::kI8 && value == -128) {
      ASSERT_EQ(Encode(GetParam(), value), 0x81u);  // saturates to -127
    } else {
      ASSERT_EQ(Encode(GetParam(), value), code);
    }
  }
}

TEST_P(ConvertTest, RoundsBetweenEveryTwoCodesToNearestEven) {
  const uint32_t half = static_cast<uint32_t>(NumCodes(GetParam()) / 2);  // the positive ones
  for (uint32_t code = 0; code + 1 < half; ++code) {
    const double low = DecodeReference(GetParam(), code);
    const double high = DecodeReference(GetParam(), code + 1);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const float tie = static_cast<float>((low + high) / 2);  // exact in FP32
    const uint32_t even = code & 1 ? code + 1 : code;
    ASSERT_EQ(Encode(GetParam(), tie), even) << tie;
    ASSERT_EQ(Encode(GetParam(), std::nextafter(tie, 0.0f)), code) << tie;
    ASSERT_EQ(Encode(GetParam(), std::nextafter(tie, kInfinity)), code + 1) << tie;
    ASSERT_EQ(Decode(GetParam(), Encode(GetParam(), -tie)), -Decode(GetParam(), even)) << tie;
  }
}

TEST_P(ConvertTest, AgreesWithTheReferenceOnRandomBits) {
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const double expected = DecodeReference(GetParam(), EncodeReference(GetParam(), value));
    const float actual = Decode(GetParam(), Encode(GetParam(), value));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << value;
    } else {
      ASSERT_EQ(actual, expected) << value;
    }
  }
}

TEST_P(ConvertTest, LongRunsGiveWhatSingleElementsGive) {
  std::mt19937 random(std::random_device{}());
  constexpr int64_t kCount = 1000;
  std::vector<float> values(kCount);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random()), -static_cast<int>(random() % 45));
  }
  values[17] = kNaN;
  values[18] = -kInfinity;
  const int size = SizeBytes(GetParam());
  for (int64_t n : {0, 1, 15, 16, 17, 63, 65, 1000}) {
    std::vector<std::byte> codes(kCount * size, std::byte{0x55});
    FromF32(GetParam(), values.data(), n, codes.data());
    for (int64_t i = 0; i < n; ++i) {
      uint32_t code = 0;
      std::memcpy(&code, codes.data() + i * size, size);
      ASSERT_EQ(code, Encode(GetParam(), values[i]) & (NumCodes(GetParam()) - 1)) << i;
    }
    for (size_t i = n * size; i < codes.size(); ++i) ASSERT_EQ(codes[i], std::byte{0x55});
    std::vector<float> back(kCount, 77.0f);
    ToF32Scaled(GetParam(), codes.data(), n, 3.0f, back.data());
    std::vector<float> factors(kCount, 3.0f);
    std::vector<float> back_times(kCount, 77.0f);
    ToF32Times(GetParam(), codes.data(), n, factors.data(), back_times.data());
    ASSERT_EQ(std::memcmp(back.data(), back_times.data(), kCount * sizeof(float)), 0);
    for (int64_t i = 0; i < n; ++i) {
      uint32_t code = 0;
      std::memcpy(&code, codes.data() + i * size, size);
      const float expected = Decode(GetParam(), code) * 3.0f;
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(back[i]) : back[i] == expected) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, ConvertTest,
                         testing::Values(DType::kBF16, DType::kF16, DType::kE4M3, DType::kI8),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(ConvertE4M3Test, SaturatesFiniteOverflowAndInfinity) {
  for (float value : {448.0f, 449.0f, 464.0f, 465.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(Encode(DType::kE4M3, value), 0x7eu) << value;
    EXPECT_EQ(Encode(DType::kE4M3, -value), 0xfeu) << value;
  }
}

TEST(ConvertE4M3Test, KeepsNaNWithItsSign) {
  EXPECT_EQ(Encode(DType::kE4M3, kNaN), 0x7fu);
  EXPECT_EQ(Encode(DType::kE4M3, -kNaN), 0xffu);
}

TEST(ConvertI8Test, SaturatesAndTurnsNaNIntoZero) {
  EXPECT_EQ(Encode(DType::kI8, kNaN), 0u);
  EXPECT_EQ(Encode(DType::kI8, kInfinity), 127u);
  EXPECT_EQ(Encode(DType::kI8, -kInfinity), 0x81u);
  EXPECT_EQ(Encode(DType::kI8, 2.5f), 2u);
  EXPECT_EQ(Encode(DType::kI8, 126.5f), 126u);
}

TEST(ConvertBF16Test, OverflowsToInfinity) {
  EXPECT_EQ(Encode(DType::kBF16, std::numeric_limits<float>::max()), 0x7f80u);
  EXPECT_EQ(Encode(DType::kBF16, std::bit_cast<float>(0x7f7f7fffu)), 0x7f7fu);
}

TEST(ConvertBF16Test, KeepsNaNWhoseLowBitsAreLost) {
  EXPECT_TRUE(
      std::isnan(Decode(DType::kBF16, Encode(DType::kBF16, std::bit_cast<float>(0x7f800001u)))));
}

TEST(ConvertF16Test, OverflowsToInfinity) {
  EXPECT_EQ(Encode(DType::kF16, 65519.0f), 0x7bffu);
  EXPECT_EQ(Encode(DType::kF16, 65520.0f), 0x7c00u);
  EXPECT_EQ(Encode(DType::kF16, -kInfinity), 0xfc00u);
}

TEST(ConvertDoubleTest, RoundsOnce) {
  std::mt19937_64 random(std::random_device{}());
  for (const DTypeInfo& info : kDTypes) {
    for (int i = 0; i < 20000; ++i) {
      // Ties of the target, moved by less than FP32 can tell.
      const double base = DecodeReference(info.dtype, random() & (NumCodes(info.dtype) - 1));
      if (!std::isfinite(base)) continue;
      const double value = base * (1 + std::ldexp(1.0, -static_cast<int>(random() % 12))) *
                           (1 + std::ldexp(1.0, -40));
      std::byte storage[4] = {};
      FromDouble(info.dtype, value, storage);
      uint32_t code = 0;
      std::memcpy(&code, storage, sizeof(code));
      ASSERT_EQ(DecodeReference(info.dtype, code),
                DecodeReference(info.dtype, EncodeReference(info.dtype, value)))
          << info.name << " " << value;
    }
  }
}

TEST(GatherTest, ScatterUndoesGather) {
  for (int size : {1, 2, 4}) {
    for (int64_t stride : {1, 2, 5}) {
      std::vector<std::byte> source(100 * stride * size);
      for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 37);
      std::vector<std::byte> dense(100 * size);
      Gather(size, source.data(), stride, 100, dense.data());
      std::vector<std::byte> target = source;
      for (int64_t i = 0; i < 100; ++i) {
        std::memset(target.data() + i * stride * size, 0, size);
      }
      Scatter(size, dense.data(), 100, target.data(), stride);
      EXPECT_TRUE(target == source);
    }
  }
}

TEST(GatherTest, TheDenseSideStartsAnywhere) {
  for (int size : {2, 4}) {
    std::vector<std::byte> source(20 * size);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 37);
    std::vector<std::byte> dense(10 * size + 1);
    Gather(size, source.data(), 2, 10, dense.data() + 1);
    std::vector<std::byte> target(source.size());
    Scatter(size, dense.data() + 1, 10, target.data(), 2);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(std::memcmp(&target[2 * i * size], &source[2 * i * size], size), 0) << i;
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::cpu
