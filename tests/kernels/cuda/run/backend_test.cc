// What creating the backend refuses, on machines with and without a GPU.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST(CudaBackendTest, RefusesOptionsThatMakeNoSense) {
  const auto code = [](const CudaBackendOptions& options) {
    return CreateCudaBackend(options).status().code();
  };
  EXPECT_EQ(code({.ordinal = -1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.memory_bytes = -1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.disabled_kernels = {"cpu_blas"}}), StatusCode::kInvalidArgument);
}

TEST(CudaBackendTest, SaysWhyThereIsNoDevice) {
  const CudaBackendOptions options = {.name = "cuda:999", .ordinal = 999};
  const absl::Status status = CreateCudaBackend(options).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("device cuda:999"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("; "));  // the remedy
}

TEST(CudaBackendTest, WithoutADriverItNamesIt) {
  if (WhyNoDevice().empty()) GTEST_SKIP() << "there is a device";
  const absl::Status status = CreateCudaBackend({}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("use cpu:0"));
  std::cout << status << "\n";
}

}  // namespace
}  // namespace gemmd::kernels::cuda
