#include "client/cli/files/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gemmd::files {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// A file with this dictionary, in the given version, and `data_bytes` of data.
std::string File(const std::string& dict, size_t data_bytes, int version = 1) {
  std::string file("\x93NUMPY", 6);
  file.push_back(static_cast<char>(version));
  file.push_back('\0');
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    file.push_back(static_cast<char>(dict.size() >> (8 * i)));
  return file + dict + std::string(data_bytes, 'x');
}

std::string ErrorOf(const std::string& file, std::optional<DType> opaque_as = std::nullopt) {
  absl::StatusOr<NpyView> view = ParseNpy(Bytes(file), opaque_as);
  EXPECT_EQ(view.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(view.status().message());
}

constexpr char kPlain[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n";

TEST(NpyTest, ReadsVersions1To3) {
  for (int version : {1, 2, 3}) {
    const std::string file = File(kPlain, 24, version);
    absl::StatusOr<NpyView> view = ParseNpy(Bytes(file));
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(view->dtype, DType::kF32);
    EXPECT_THAT(view->shape, ElementsAre(2, 3));
    EXPECT_FALSE(view->fortran_order);
    EXPECT_EQ(view->data.size(), 24u);
  }
  EXPECT_THAT(ErrorOf(File(kPlain, 24, 4)), HasSubstr("version 4"));
}

TEST(NpyTest, WhatItWritesItReads) {
  for (DType dtype :
       {DType::kF32, DType::kF16, DType::kI8, DType::kF64, DType::kBf16, DType::kE4m3}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {5}, {2, 3}, {2, 3, 4}}) {
      const std::string header = NpyHeader(dtype, shape);
      EXPECT_EQ(header.size() % 64, 0u);
      const std::string file = header + std::string(*DenseBytes(shape, ElementSize(dtype)), 'x');
      absl::StatusOr<NpyView> view = ParseNpy(Bytes(file), dtype);
      ASSERT_TRUE(view.ok()) << view.status();
      EXPECT_EQ(view->dtype, dtype);
      EXPECT_EQ(view->shape, shape);
    }
  }
}

TEST(NpyTest, TellsFortranOrder) {
  absl::StatusOr<NpyView> view =
      ParseNpy(Bytes(File("{'descr': '<f2', 'fortran_order': True, 'shape': (2, 3)}", 12)));
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_TRUE(view->fortran_order);
}

TEST(NpyTest, OpaqueElementsNeedToBeNamed) {
  const std::string two = File("{'descr': '<V2', 'fortran_order': False, 'shape': (4,)}", 8);
  const std::string one = File("{'descr': '|V1', 'fortran_order': False, 'shape': (4,)}", 4);
  EXPECT_THAT(ErrorOf(two), HasSubstr("--dtype bf16"));
  EXPECT_THAT(ErrorOf(one), HasSubstr("--dtype e4m3"));
  EXPECT_THAT(ErrorOf(two, DType::kE4m3), HasSubstr("2-byte elements, but --dtype e4m3 has 1"));
  EXPECT_EQ(ParseNpy(Bytes(two), DType::kBf16)->dtype, DType::kBf16);
  EXPECT_EQ(ParseNpy(Bytes(one), DType::kE4m3)->dtype, DType::kE4m3);
}

TEST(NpyTest, RefusesHeaderLongerThanFile) {
  std::string file = File(kPlain, 0);
  file[8] = '\x60';
  file[9] = '\x20';
  EXPECT_THAT(ErrorOf(file), HasSubstr("claims 8288 bytes"));
}

TEST(NpyTest, RefusesHeaderLengthOfFourGigabytes) {
  std::string file = File(kPlain, 24, 2);
  for (int i = 8; i < 12; ++i) file[i] = '\xff';
  EXPECT_THAT(ErrorOf(file), HasSubstr("claims 4294967295 bytes, at most 65536"));
}

TEST(NpyTest, RefusesDataShorterOrLongerThanTheShape) {
  EXPECT_THAT(ErrorOf(File(kPlain, 23)),
              HasSubstr("takes 24 bytes, the file has 23 after its header: it is cut short"));
  EXPECT_THAT(ErrorOf(File(kPlain, 25)), HasSubstr("more than one array"));
}

TEST(NpyTest, RefusesShapesWhoseProductOverflows) {
  EXPECT_THAT(
      ErrorOf(
          File("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 0)),
      HasSubstr("passes 2^63 bytes"));
  EXPECT_THAT(ErrorOf(File(
                  "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 0)),
              HasSubstr("passes 2^63"));
  EXPECT_THAT(
      ErrorOf(File("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9223372036854775807, 2)}",
                   0)),
      HasSubstr("passes 2^63"));
}

TEST(NpyTest, RefusesEveryTruncation) {
  const std::string file = File(kPlain, 24);
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(ParseNpy(Bytes(file.substr(0, size))).ok()) << size;
  }
}

TEST(NpyTest, RefusesWhatIsNoArrayOfNumbers) {
  EXPECT_THAT(ErrorOf("PK\x03\x04 this is an npz"), HasSubstr("not a .npy file"));
  EXPECT_THAT(ErrorOf(File("{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}", 8)),
              HasSubstr("'<i8'"));
  EXPECT_THAT(ErrorOf(File("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8)),
              HasSubstr("no element type"));
  EXPECT_THAT(ErrorOf(File("{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4)),
              HasSubstr("big-endian"));
  EXPECT_THAT(ErrorOf(File("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4)),
              HasSubstr("structured"));
}

TEST(NpyDictTest, RefusesEverythingButTheThreeFields) {
  using internal::ParseNpyDict;
  for (const char* text : {"", "{", "{}", "[]", "{'descr': '<f4'}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x",
                           "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'extra': 1}",
                           "{'descr': '<f4', 'fortran_order': false, 'shape': (2, 3)}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
                           "{'descr': '<f4', 'fortran_order': False, 'shape': 2}",
                           "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (2,)}",
                           "{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}",
                           "{'descr': __import__('os'), 'fortran_order': False, 'shape': (2,)}"}) {
    EXPECT_FALSE(ParseNpyDict(text).ok()) << text;
  }
  EXPECT_TRUE(ParseNpyDict("{'shape':(),'fortran_order':True,\"descr\":\"<f4\"}").ok());
}

TEST(NpyDictTest, RefusesMoreThan32Extents) {
  std::string extents;
  for (int i = 0; i < 33; ++i) extents += "1, ";
  EXPECT_THAT(
      internal::ParseNpyDict("{'descr': '<f4', 'fortran_order': False, 'shape': (" + extents + ")}")
          .status()
          .message(),
      HasSubstr("more than 32"));
}

}  // namespace
}  // namespace gemmd::files
