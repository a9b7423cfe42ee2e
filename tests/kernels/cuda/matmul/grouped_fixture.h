// A grouped matmul through the backend, on a device.

#pragma once

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/contract/backend_executor.h"
#include "tests/kernels/contract/grouped_case.h"
#include "tests/kernels/cuda/backend_fixture.h"

namespace gemmd::kernels::cuda {

inline constexpr GroupLayout kEveryLayout[] = {GroupLayout::kOffsets, GroupLayout::kCounts,
                                               GroupLayout::kRowIds, GroupLayout::kEnds};

template <typename Kind>
class GroupedGpuTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    auto backend = CreateCudaBackend({.memory_bytes = kLimit});
    ASSERT_TRUE(backend.ok()) << backend.status();
    executor_ = contract::MakeBackendExecutor(*std::move(backend));
  }

  std::unique_ptr<contract::Executor> executor_;
};

}  // namespace gemmd::kernels::cuda
