// E4M3 with scales by row by stream-k.

#include "kernels/cuda/sm90/stream/sm90_stream_family.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig Tiled(int m, int n, int stages) {
  return {.family = GemmFamily::kTiled,
          .mma = Mma::kFp8Row,
          .rows = m,
          .cols = n,
          .groups = m % 192 == 0 ? 3 : 2,
          .stages = stages};
}

}  // namespace

// As those of block scales.
constexpr GemmConfig kFp8RowStreamConfigs[] = {
    Tiled(128, 192, 5),
    Tiled(192, 128, 4),
};
constexpr int kCount = sizeof(kFp8RowStreamConfigs) / sizeof(kFp8RowStreamConfigs[0]);

extern const StreamFamilyEntry kSm90Fp8RowStream =
    MakeStreamFamily<kFp8RowStreamConfigs>("sm90_fp8row_stream", MakeIndices<kCount>::Type());

}  // namespace gemmd::kernels::cuda
