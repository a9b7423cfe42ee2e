// The contract suite on the kernels that take anything, launched one by one.

#include "tests/kernels/cuda/device_buffer.h"
#include "tests/kernels/cuda/kernel_executor.h"

namespace gemmd::kernels::contract {
namespace {

// The suite's fixture cannot skip, so without a device there is nothing to instantiate it for.
std::vector<Subject> Subjects() {
  if (!cuda::WhyNoDevice().empty()) return {};
  return {{"plain", [] { return cuda::MakeKernelExecutor(false); }},
          {"overlapped", [] { return cuda::MakeKernelExecutor(true); }, 30}};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ContractTest);

TEST(ContractGpuTest, HasADevice) { GEMMD_REQUIRE_DEVICE(); }

INSTANTIATE_TEST_SUITE_P(Gpu, ContractTest, testing::ValuesIn(Subjects()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gemmd::kernels::contract
