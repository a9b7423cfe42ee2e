#include "client/cli/files/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "client/cli/files/npy.h"

namespace gemmd::files {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Path(const std::string& name) {
  return ::testing::TempDir() + "/gemmd_matrix_test_" + name;
}

void Save(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

template <typename T>
std::string Raw(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::vector<double> Values(const Matrix& matrix) {
  std::vector<double> values(matrix.bytes().size() / ElementSize(matrix.dtype()));
  ToDouble(matrix.dtype(), matrix.bytes().data(), 0, values);
  return values;
}

TEST(MatrixPathTest, SplitsTheTensorsNameOff) {
  EXPECT_EQ(ParseMatrixPath("a.npy")->file, "a.npy");
  absl::StatusOr<MatrixPath> path = ParseMatrixPath("/x/m.safetensors:layer.0:w");
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(path->file, "/x/m.safetensors");
  EXPECT_EQ(path->tensor, "layer.0:w");
  EXPECT_EQ(ParseMatrixPath("m.safetensors")->tensor, "");
  EXPECT_THAT(ParseMatrixPath("a.txt").status().message(), HasSubstr("neither FILE.npy nor"));
}

TEST(MatrixTest, NarrowsFloat64AndKeepsWhatTheFileHolds) {
  const std::string path = Path("f8.npy");
  Save(path, NpyHeader(DType::kF64, std::vector<int64_t>{3}) +
                 Raw<double>({1 + std::ldexp(1, -40), -2.5, 1e300}));
  absl::StatusOr<Matrix> matrix = LoadMatrix(path);
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_EQ(matrix->dtype(), DType::kF32);
  EXPECT_THAT(Values(*matrix), ElementsAre(1, -2.5, std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(matrix->narrowed());
  EXPECT_EQ(matrix->overflowed(), 1);
  const Matrix moved = *std::move(matrix);
  EXPECT_EQ(moved.file_dtype(), DType::kF64);
  std::vector<double> held(3);
  ToDouble(moved.file_dtype(), moved.file_values(), 0, held);
  EXPECT_THAT(held, ElementsAre(1 + std::ldexp(1, -40), -2.5, 1e300));
}

TEST(MatrixTest, WhatTheFileHoldsIsInRowsToo) {
  const std::string path = Path("f8_fortran.npy");
  std::string header = NpyHeader(DType::kF64, std::vector<int64_t>{2, 3});
  header.replace(header.find("False"), 5, "True ");
  Save(path, header + Raw<double>({1, 4, 2, 5, 3, 6}));
  absl::StatusOr<Matrix> matrix = LoadMatrix(path);
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_THAT(Values(*matrix), ElementsAre(1, 2, 3, 4, 5, 6));
  std::vector<double> held(6);
  ToDouble(matrix->file_dtype(), matrix->file_values(), 0, held);
  EXPECT_THAT(held, ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(MatrixTest, IntegersAreRefusedByName) {
  const std::string path = Path("i8.npy");
  std::string header = NpyHeader(DType::kF64, std::vector<int64_t>{2});
  header.replace(header.find("<f8"), 3, "<i8");
  Save(path, header + Raw<int64_t>({1, 2}));
  const absl::Status refused = LoadMatrix(path).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("<i8"), HasSubstr("astype")));
}

TEST(MatrixTest, LaysFortranOrderOutInRows) {
  std::string header = NpyHeader(DType::kI8, std::vector<int64_t>{2, 3});
  header.replace(header.find("False"), 5, "True ");
  Save(Path("fortran.npy"), header + Raw<int8_t>({1, 4, 2, 5, 3, 6}));
  absl::StatusOr<Matrix> matrix = LoadMatrix(Path("fortran.npy"));
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_THAT(Values(*matrix), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(MatrixTest, LaysBatchedFortranOrderOutInRows) {
  std::string header = NpyHeader(DType::kI8, std::vector<int64_t>{2, 2, 2});
  header.replace(header.find("False"), 5, "True ");
  Save(Path("fortran3.npy"), header + Raw<int8_t>({0, 4, 2, 6, 1, 5, 3, 7}));
  absl::StatusOr<Matrix> matrix = LoadMatrix(Path("fortran3.npy"));
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_THAT(Values(*matrix), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(MatrixTest, RefusesRanksAndEmptyShapes) {
  Save(Path("rank0.npy"), NpyHeader(DType::kI8, {}) + "x");
  EXPECT_THAT(LoadMatrix(Path("rank0.npy")).status().message(), HasSubstr("1 to 3 are served"));
  Save(Path("rank4.npy"), NpyHeader(DType::kI8, std::vector<int64_t>{1, 1, 1, 1}) + "x");
  EXPECT_THAT(LoadMatrix(Path("rank4.npy")).status().message(), HasSubstr("has 4 extents"));
  Save(Path("empty.npy"), NpyHeader(DType::kI8, std::vector<int64_t>{3, 0}));
  EXPECT_THAT(LoadMatrix(Path("empty.npy")).status().message(), HasSubstr("is empty"));
}

TEST(MatrixTest, RefusesWhatIsNotARegularFile) {
  EXPECT_EQ(LoadMatrix(Path("missing.npy")).status().code(), absl::StatusCode::kNotFound);
  const std::string pipe = Path("pipe.npy");
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(LoadMatrix(pipe).status().message(), HasSubstr("not a regular file"));
  Save(Path("zero.npy"), "");
  EXPECT_THAT(LoadMatrix(Path("zero.npy")).status().message(), HasSubstr("has 0 bytes"));
}

TEST(DTypeTest, DecodesTheCornersOfEachFormat) {
  const uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x7e00};
  const auto* h = reinterpret_cast<const std::byte*>(half);
  EXPECT_EQ(ElementAt(DType::kF16, h, 0), 1.0);
  EXPECT_EQ(ElementAt(DType::kF16, h, 1), -2.0);
  EXPECT_EQ(ElementAt(DType::kF16, h, 2), std::ldexp(1, -24));
  EXPECT_EQ(ElementAt(DType::kF16, h, 3), 65504);
  EXPECT_TRUE(std::isinf(ElementAt(DType::kF16, h, 4)));
  EXPECT_TRUE(std::isnan(ElementAt(DType::kF16, h, 5)));
  const uint8_t fp8[] = {0x38, 0x7e, 0x01, 0x7f, 0xc0};
  const auto* e = reinterpret_cast<const std::byte*>(fp8);
  EXPECT_EQ(ElementAt(DType::kE4m3, e, 0), 1.0);
  EXPECT_EQ(ElementAt(DType::kE4m3, e, 1), 448.0);
  EXPECT_EQ(ElementAt(DType::kE4m3, e, 2), std::ldexp(1, -9));
  EXPECT_TRUE(std::isnan(ElementAt(DType::kE4m3, e, 3)));
  EXPECT_EQ(ElementAt(DType::kE4m3, e, 4), -2.0);
  const uint8_t grads[] = {0x3c, 0x7b, 0x01, 0x7c, 0xfe, 0xc4};
  const auto* g = reinterpret_cast<const std::byte*>(grads);
  EXPECT_EQ(ElementAt(DType::kE5m2, g, 0), 1.0);
  EXPECT_EQ(ElementAt(DType::kE5m2, g, 1), 57344.0);
  EXPECT_EQ(ElementAt(DType::kE5m2, g, 2), std::ldexp(1, -16));
  EXPECT_TRUE(std::isinf(ElementAt(DType::kE5m2, g, 3)));
  EXPECT_TRUE(std::isnan(ElementAt(DType::kE5m2, g, 4)));
  EXPECT_EQ(ElementAt(DType::kE5m2, g, 5), -4.0);
  const uint16_t bf16[] = {0x3f80, 0xc040};
  EXPECT_EQ(ElementAt(DType::kBf16, reinterpret_cast<const std::byte*>(bf16), 1), -3.0);
}

}  // namespace
}  // namespace gemmd::files
