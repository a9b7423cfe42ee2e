#include "client/cli/files/safetensors.h"

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

std::string File(const std::string& json, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(uint64_t{json.size()} >> (8 * i)));
  return file + json + std::string(data_bytes, 'x');
}

std::string ErrorOf(const std::string& file) {
  absl::StatusOr<SafetensorsView> view = ParseSafetensors(Bytes(file));
  EXPECT_EQ(view.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(view.status().message());
}

constexpr char kTwo[] =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[16,28]},)"
    R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}   )";

TEST(SafetensorsTest, ReadsTensorsInTheOrderOfTheirData) {
  const std::string file = File(kTwo, 28);
  absl::StatusOr<SafetensorsView> view = ParseSafetensors(Bytes(file));
  ASSERT_TRUE(view.ok()) << view.status();
  ASSERT_EQ(view->tensors.size(), 2u);
  EXPECT_EQ(view->tensors[0].name, "a");
  EXPECT_EQ(view->tensors[1].name, "b");
  EXPECT_EQ(view->tensors[1].dtype, DType::kBf16);
  EXPECT_THAT(view->tensors[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(view->tensors[1].data.data(), Bytes(file).data() + file.size() - 12);
}

TEST(SafetensorsTest, WhatItWritesItReads) {
  for (DType dtype :
       {DType::kF32, DType::kF16, DType::kI8, DType::kBf16, DType::kE4m3, DType::kE5m2}) {
    const std::string header = SafetensorsHeader("layer.0/w", dtype, std::vector<int64_t>{3, 5});
    EXPECT_EQ(header.size() % 64, 0u);
    const std::string file = header + std::string(15 * ElementSize(dtype), 'x');
    absl::StatusOr<SafetensorsView> view = ParseSafetensors(Bytes(file));
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ((*view->Find("layer.0/w"))->dtype, dtype);
    EXPECT_EQ((*view->Find(""))->name, "layer.0/w");
  }
}

TEST(SafetensorsTest, FindNamesWhatThereIs) {
  const std::string file = File(kTwo, 28);
  absl::StatusOr<SafetensorsView> view = ParseSafetensors(Bytes(file));
  ASSERT_TRUE(view.ok());
  EXPECT_THAT(view->Find("c").status().message(), HasSubstr("there are a, b"));
  EXPECT_THAT(SafetensorsView().Find("c").status().message(), HasSubstr("there are none"));
  EXPECT_THAT(view->Find("").status().message(),
              HasSubstr("holds 2 tensors (a, b); name one as FILE:NAME"));
}

TEST(SafetensorsTest, RefusesHeaderLengthsThatLie) {
  std::string file = File(kTwo, 28);
  for (int i = 0; i < 8; ++i) file[i] = '\xff';
  EXPECT_THAT(ErrorOf(file), HasSubstr("claims 18446744073709551615 bytes"));
  file = File(kTwo, 0).substr(0, 100);
  EXPECT_THAT(ErrorOf(file), HasSubstr("cut short"));
  EXPECT_THAT(ErrorOf("1234567"), HasSubstr("at least 8"));
}

TEST(SafetensorsTest, RefusesEveryTruncation) {
  const std::string file = File(kTwo, 28);
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(ParseSafetensors(Bytes(file.substr(0, size))).ok()) << size;
  }
}

TEST(SafetensorsTest, RefusesBytesBehindTheTensors) {
  EXPECT_THAT(ErrorOf(File(kTwo, 29)), HasSubstr("more than its header says"));
}

TEST(SafetensorsTest, RefusesGapsAndOverlaps) {
  EXPECT_THAT(ErrorOf(File(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"I8","shape":[4],"data_offsets":[5,9]}})",
                           9)),
              HasSubstr("there is a gap"));
  EXPECT_THAT(ErrorOf(File(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"I8","shape":[4],"data_offsets":[3,7]}})",
                           7)),
              HasSubstr("they overlap"));
}

TEST(SafetensorsTest, RefusesOffsetsThatContradictTheShape) {
  EXPECT_THAT(ErrorOf(File(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,15]}})", 15)),
              HasSubstr("takes 16 bytes, its data_offsets span 15"));
  EXPECT_THAT(ErrorOf(File(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})", 16)),
              HasSubstr("lies"));
  EXPECT_THAT(ErrorOf(File(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 12)),
              HasSubstr("cut short"));
  EXPECT_THAT(
      ErrorOf(
          File(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0)),
      HasSubstr("passes 2^63"));
}

TEST(SafetensorsTest, RefusesDuplicates) {
  EXPECT_THAT(ErrorOf(File(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                           R"("a":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
                           2)),
              HasSubstr("'a' is there twice"));
  EXPECT_THAT(
      ErrorOf(File(R"({"a":{"dtype":"I8","dtype":"F32","shape":[1],"data_offsets":[0,1]}})", 1)),
      HasSubstr("'dtype' is there twice"));
}

TEST(SafetensorsTest, RefusesDeepAndMisplacedJson) {
  EXPECT_FALSE(ParseSafetensors(Bytes(File(std::string(1000000, '['), 0))).ok());
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_FALSE(ParseSafetensors(Bytes(File(deep, 0))).ok());
  for (const char* json :
       {"",
        "5",
        "[]",
        "null",
        "{\"a\":5}",
        "{\"a\":[]}",
        "{\"a\":{}}",
        "{\"a\":{\"dtype\":\"F32\"}}",
        R"({"a":{"dtype":5,"shape":[],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})",
        R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})",
        R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} {})",
        "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        R"({"__metadata__":{"a":{"b":"c"}}})",
        R"({"__metadata__":"x"})"}) {
    EXPECT_FALSE(ParseSafetensors(Bytes(File(json, 4))).ok()) << json;
  }
}

TEST(SafetensorsTest, TakesScalarsAndEmptyTensorsAndForeignTypes) {
  const std::string file = File(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                R"("e":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]},)"
                                R"("i":{"dtype":"I64","shape":[1],"data_offsets":[4,12]},)"
                                R"("g":{"dtype":"F8_E5M2","shape":[2],"data_offsets":[12,14]},)"
                                R"("n":{"dtype":"F4_NEW","shape":[3],"data_offsets":[14,16]}})",
                                16);
  absl::StatusOr<SafetensorsView> view = ParseSafetensors(Bytes(file));
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_FALSE((*view->Find("i"))->dtype.has_value());
  EXPECT_EQ((*view->Find("g"))->dtype, DType::kE5m2);
  EXPECT_EQ((*view->Find("n"))->dtype_name, "F4_NEW");
}

}  // namespace
}  // namespace gemmd::files
