// The contract suite on the CPU backend, with its own choice of kernels and with each one alone.

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/contract/backend_executor.h"

namespace gemmd::kernels::contract {
namespace {

std::unique_ptr<Executor> Without(std::vector<std::string> disabled_kernels) {
  CpuBackendOptions options;
  options.disabled_kernels = std::move(disabled_kernels);
  return MakeBackendExecutor(*CreateCpuBackend(options));
}

INSTANTIATE_TEST_SUITE_P(
    Cpu, ContractTest,
    testing::Values(Subject{"default", [] { return Without({}); }},
                    // What serves everything, on problems that it would not be chosen for.
                    Subject{"panels",
                            [] {
                              return Without({"cpu_blas", "cpu_dot"});
                            },
                            30},
                    // Copy ops that read another device's memory.
                    Subject{"two_devices",
                            [] {
                              return MakeBackendExecutor(*CreateCpuBackend({.name = "cpu:0"}),
                                                         *CreateCpuBackend({.name = "cpu:1"}));
                            },
                            5, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gemmd::kernels::contract
