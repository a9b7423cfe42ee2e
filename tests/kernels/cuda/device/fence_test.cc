#include "kernels/cuda/device/fence.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/fault.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

TEST(FenceTest, OrdinaryErrorsLeaveItDown) {
  Fence fence("cuda:3");
  EXPECT_TRUE(fence.Check(cudaSuccess, "copying").ok());
  EXPECT_EQ(fence.Check(cudaErrorMemoryAllocation, "copying").code(),
            StatusCode::kResourceExhausted);
  const absl::Status odd = fence.Check(absl::InternalError("odd"));
  EXPECT_EQ(odd.code(), StatusCode::kInternal);
  EXPECT_FALSE(IsDeviceFault(odd));
  EXPECT_TRUE(fence.status().ok());
}

TEST(FenceTest, AStickyErrorStaysForGood) {
  Fence fence("cuda:3");
  const absl::Status first = fence.Check(cudaErrorIllegalAddress, "op 2 (matmul)");
  EXPECT_EQ(first.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(first.message()),
              AllOf(HasSubstr("cuda:3 is fenced"), HasSubstr("op 2 (matmul)"),
                    HasSubstr("cudaErrorIllegalAddress")));
  EXPECT_EQ(fence.Check(cudaErrorLaunchFailure, "another"), first);
  EXPECT_EQ(fence.status(), first);
  EXPECT_TRUE(IsDeviceFault(first));
}

// What a process under MPS sees of it at its next call.
TEST(FenceTest, AnMpsServerThatIsGoneRaisesIt) {
  for (const cudaError_t code :
       {cudaErrorMpsConnectionFailed, cudaErrorMpsRpcFailure, cudaErrorMpsClientTerminated}) {
    Fence fence("cuda:0");
    EXPECT_EQ(fence.Check(code, "launching").code(), StatusCode::kUnavailable);
    EXPECT_FALSE(fence.status().ok());
  }
}

TEST(FenceTest, AnyErrorOfAWaitRaisesIt) {
  Fence fence("cuda:0");
  const absl::Status raised = fence.Raise(absl::InternalError("running a program: odd"));
  EXPECT_EQ(raised.code(), StatusCode::kUnavailable);
  EXPECT_EQ(fence.status(), raised);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
