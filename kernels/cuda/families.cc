#include "kernels/cuda/families.h"

#include "kernels/cuda/ladder/ladder.h"
#include "kernels/cuda/matmul/gate_family.h"
#include "kernels/cuda/matmul/gradient/gradient_family.h"
#include "kernels/cuda/matmul/plain_family.h"
#ifdef GEMMD_FAULT_KERNEL
#include "kernels/cuda/matmul/fault_member.h"
#endif

namespace gemmd::kernels::cuda {

std::vector<std::shared_ptr<const MatmulFamily>> MatmulFamilies(const DeviceTraits& device,
                                                                double memory_bytes_per_s) {
  std::vector<PlainKernel> kernels = {AnyGemmKernel(LaunchAnyGemm)};
#ifdef GEMMD_FAULT_KERNEL
  kernels.push_back(FaultKernel());
#endif
  return {std::make_shared<GateFamily>(device, memory_bytes_per_s),
          std::make_shared<GradientFamily>(device, memory_bytes_per_s),
          std::make_shared<PlainFamily>(std::move(kernels)),
          std::make_shared<PlainFamily>(LadderKernels())};
}

}  // namespace gemmd::kernels::cuda
