// The contract suite on the CUDA backend, with its own choice of kernels and without the TMA
// families.

#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/contract/backend_executor.h"
#include "tests/kernels/cuda/two_gpus.h"

namespace gemmd::kernels::contract {
namespace {

std::unique_ptr<Executor> Without(std::vector<std::string> disabled_kernels) {
  CudaBackendOptions options;
  options.memory_bytes = int64_t{4} << 30;
  options.disabled_kernels = std::move(disabled_kernels);
  return MakeBackendExecutor(*CreateCudaBackend(options));
}

// The suite's fixture cannot skip, so without a device there is nothing to instantiate it for.
std::vector<Subject> Subjects() {
  if (!cuda::WhyNoDevice().empty()) return {};
  std::vector<Subject> subjects = {
      {"cuda", [] { return Without({}); }},
      {"any",
       [] {
         return Without({"sm90_fp8_tiled",       "sm90_fp8_skinny",     "sm90_fp8_gate",
                         "sm90_fp8_grouped",     "sm90_fp8_gradient",   "sm90_bf16_tiled",
                         "sm90_bf16_skinny",     "sm90_bf16_stream",    "sm90_bf16_grouped",
                         "sm90_f16_tiled",       "sm90_f16_skinny",     "sm90_f16_stream",
                         "sm90_f16_grouped",     "sm90_i8_tiled",       "sm90_i8_skinny",
                         "sm90_i8block_tiled",   "sm90_i8block_skinny", "sm90_i8_grouped",
                         "sm90_i8block_grouped", "sm90_bf16_gradient",  "sm90_f16_gradient",
                         "sm90_fp8_stream",      "sm90_fp8row_tiled",   "sm90_fp8row_skinny",
                         "sm90_fp8row_grouped",  "sm90_fp8row_stream"});
       },
       30}};
  // Copy ops that read another GPU's memory.
  if (cuda::WhyNotTwoGpus().empty()) {
    subjects.push_back({"two_devices",
                        [] { return MakeBackendExecutor(cuda::BackendOf(0), cuda::BackendOf(1)); },
                        5, true});
  }
  return subjects;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ContractTest);

TEST(ContractCudaGpuTest, HasADevice) { GEMMD_REQUIRE_DEVICE(); }

INSTANTIATE_TEST_SUITE_P(Cuda, ContractTest, testing::ValuesIn(Subjects()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gemmd::kernels::contract
