// The pool of TMA + WGMMA matmul kernels: its members by name, and their launch. Which member
// serves a problem is selector.h's business, whether it can is legality.h's.
//
//   GemmVariant v = *FindVariant("sm90_fp8_skinny_64x64_s10_k4");
//   absl::StatusOr<GemmLaunch> launch = PrepareLaunch(v, args, traits);
//   absl::Status status = Launch(v, *launch, stream);

#ifndef GEMMD_KERNELS_CUDA_SM90_GEMM_H_
#define GEMMD_KERNELS_CUDA_SM90_GEMM_H_

#include <cuda_runtime_api.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/device/device_traits.h"
#include "kernels/cuda/sm90/gemm_family.h"

namespace gemmd::kernels::cuda {

// One member of the pool: a family's config, and how many CTAs of a cluster divide k.
struct GemmVariant {
  int family = 0;  // index into kGemmFamilies
  int config = 0;  // index into that family's configs
  int split = 1;

  const GemmFamilyEntry& entry() const { return *kGemmFamilies[family]; }
  const GemmConfig& shape() const { return entry().configs[config]; }
  friend bool operator==(const GemmVariant&, const GemmVariant&) = default;
};

// "sm90_fp8_skinny_m64n64s10_k4": family, tile in D's terms, stages, then only what differs from
// the plain config (x2 CTAs an SM, r2/c2 multicast, k4 split).
std::string Name(const GemmVariant& variant);

// The hash of its kernel's machine code (code_hash.h), which all splits of a config share.
std::string_view CodeOf(const GemmVariant& variant);

// Every member, families in order, splits of a config ascending. Stable within a build.
absl::Span<const GemmVariant> AllVariants();
std::optional<GemmVariant> FindVariant(std::string_view name);

// Tensor maps and grid for `args`, which must be legal for `variant` (legality.h).
// INVALID_ARGUMENT when the driver refuses a tensor map, with the offending value.
absl::StatusOr<GemmLaunch> PrepareLaunch(const GemmVariant& variant, const Fp8GemmArgs& args,
                                         const DeviceTraits& device);

// Queues it on `stream` of the current device. Thread-safe.
absl::Status Launch(const GemmVariant& variant, const GemmLaunch& launch, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_GEMM_H_
