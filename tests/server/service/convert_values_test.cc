// What is smaller than an op: a buffer's type and size, a page of a list, a status, a duration.

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/page.h"
#include "server/service/wire/status.h"

namespace gemmd::server {
namespace {

absl::StatusOr<BufferSpec> Spec(v1::DType dtype, std::vector<int64_t> shape, int64_t size) {
  google::protobuf::RepeatedField<int64_t> dims(shape.begin(), shape.end());
  return ConvertSpec(dtype, dims, size);
}

TEST(ConvertSpecTest, DtypeAndShapeGiveTheSize) {
  EXPECT_EQ(Spec(v1::DTYPE_BF16, {3, 5}, 0)->size_bytes, 30);
  EXPECT_EQ(Spec(v1::DTYPE_BF16, {3, 5}, 64)->size_bytes, 64);
  EXPECT_EQ(Spec(v1::DTYPE_UNSPECIFIED, {}, 7)->size_bytes, 7);
}

TEST(ConvertSpecTest, WhatDisagreesOrOverflowsIsRefused) {
  for (const auto& bad : {Spec(v1::DTYPE_BF16, {3, 5}, 29), Spec(v1::DTYPE_UNSPECIFIED, {3}, 100),
                          Spec(v1::DTYPE_UNSPECIFIED, {}, 0), Spec(v1::DTYPE_UNSPECIFIED, {}, -1),
                          Spec(v1::DTYPE_F32, {INT64_MAX, 2}, 0), Spec(v1::DTYPE_F32, {-1}, 0),
                          Spec(v1::DTYPE_F32, {0}, 0), Spec(v1::DTYPE_F32, {1, 1, 1, 1}, 0),
                          Spec(static_cast<v1::DType>(9), {1}, 0)}) {
    EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(PageTest, GoesThroughAListAndEnds) {
  auto page = ConvertPage(2, "");
  EXPECT_EQ(NextToken(*page, 5), "2");
  page = ConvertPage(2, "4");
  EXPECT_EQ(page->skip, 4);
  EXPECT_EQ(NextToken(*page, 5), "");
  EXPECT_FALSE(ConvertPage(1001, "").ok());
  EXPECT_FALSE(ConvertPage(-1, "").ok());
  EXPECT_FALSE(ConvertPage(1, "x").ok());
  EXPECT_FALSE(ConvertPage(1, "-5").ok());
}

TEST(StatusTest, KeepsCodesAndCutsLongMessages) {
  const grpc::Status status = ToGrpc(absl::DataLossError(std::string(10000, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(status.error_message().size(), 4096);
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
}

TEST(DurationTest, RoundTrips) {
  for (absl::Duration d : {absl::Milliseconds(1500), absl::ZeroDuration(), absl::Hours(5)}) {
    EXPECT_EQ(FromProto(ToProto(d)), d);
  }
}

}  // namespace
}  // namespace gemmd::server
