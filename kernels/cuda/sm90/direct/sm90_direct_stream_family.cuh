// The stream-k tables of BF16 and FP16: one list for both, of which a .cu makes one type's.

#ifndef GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_STREAM_FAMILY_CUH_
#define GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_STREAM_FAMILY_CUH_

#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/stream/sm90_stream_family.cuh"

namespace gemmd::kernels::cuda {

// Large tiles, of widths that leave few rows over: how many there are is no matter here.
template <Mma kMma>
struct StreamConfigs {
  using Direct = DirectConfigs<kMma>;
  static constexpr GemmConfig kAll[] = {
      Direct::Tiled(128, 192, 5),
      Direct::Tiled(128, 256, 4),
      Direct::TwoSubTiles(Direct::Skinny(112, 256, 1, 4)),
      Direct::Skinny(144, 128, 1, 5),
      Direct::Skinny(176, 128, 1, 4),
  };
  static constexpr int kCount = sizeof(kAll) / sizeof(kAll[0]);
};

template <Mma kMma>
constexpr StreamFamilyEntry MakeDirectStreamFamily(const char* name) {
  return MakeStreamFamily<StreamConfigs<kMma>::kAll>(
      name, typename MakeIndices<StreamConfigs<kMma>::kCount>::Type());
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_STREAM_FAMILY_CUH_
