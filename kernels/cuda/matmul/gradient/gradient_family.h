// The kernels for gradients of weights as a family of dense matmuls: FP8 with scales of 1x128 on
// both sides. Those of 16 bits are the TMA families', which divide k where tiles are few.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device/device_traits.h"
#include "kernels/cuda/matmul/family.h"

namespace gemmd::kernels::cuda {

class GradientFamily final : public MatmulFamily {
 public:
  GradientFamily(DeviceTraits device, double memory_bytes_per_s);

  absl::Span<const KernelInfo> members() const override { return infos_; }
  Standing standing(int) const override { return Standing::kContends; }
  std::string WhyNot(int member, const MatmulProblem& problem) const override;
  double Seconds(int member, const MatmulProblem& problem) const override;
  int64_t ScratchBytes(int member, const MatmulProblem& problem) const override;
  absl::StatusOr<std::unique_ptr<const PreparedMatmul>> Prepare(int member, const MatmulArgs& args,
                                                                std::byte* scratch) const override;

 private:
  const DeviceTraits device_;
  const double memory_bytes_per_s_;
  const std::vector<KernelInfo> infos_;
};

}  // namespace gemmd::kernels::cuda
