// E4M3 with block scales by stream-k.

#include "kernels/cuda/sm90/stream/sm90_stream_family.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig Tiled(int m, int n, int stages) {
  return {.family = GemmFamily::kTiled,
          .rows = m,
          .cols = n,
          .groups = m % 192 == 0 ? 3 : 2,
          .stages = stages};
}

}  // namespace

// Large tiles, whose products take nearly all of shared memory's time: how many there are is no
// matter here.
constexpr GemmConfig kFp8StreamConfigs[] = {
    Tiled(128, 192, 5),
    Tiled(192, 128, 4),
};
constexpr int kCount = sizeof(kFp8StreamConfigs) / sizeof(kFp8StreamConfigs[0]);

extern const StreamFamilyEntry kSm90Fp8Stream =
    MakeStreamFamily<kFp8StreamConfigs>("sm90_fp8_stream", MakeIndices<kCount>::Type());

}  // namespace gemmd::kernels::cuda
