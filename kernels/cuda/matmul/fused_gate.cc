#include "kernels/cuda/matmul/fused_gate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/rounding.h"
#include "kernels/cuda/sm90/tensor_map.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

constexpr int64_t kUnitBytes = 16;  // of a row of d at a time
// Tiles of rows that go through the weights together. Few rows a group: its own. Many: as much of A
// as stays in L2 beside the weights.
constexpr int kThinBand = 2, kWideBand = 16;

absl::Status MakeMaps(const GemmConfig& config, const GemmArgs& args, int64_t matrices,
                      GemmLaunch& launch) {
  const TensorView a = {.address = args.a,
                        .cols = args.k,
                        .rows = args.m,
                        .batch = args.batch,
                        .row_stride_bytes = args.lda,
                        .batch_stride_bytes = args.a_batch,
                        .box_cols = kBlockK,
                        .box_rows = config.skinny() ? kGateRowsABox : config.block_m()};
  const TensorView b = {.address = args.b,
                        .cols = args.k,
                        .rows = args.n,
                        .batch = matrices,
                        .row_stride_bytes = args.ldb,
                        .batch_stride_bytes = args.b_batch,
                        .box_cols = kBlockK,
                        .box_rows = config.b_box()};
  const TensorView scales = {.address = args.a_scales,
                             .cols = args.m,
                             .rows = 1,
                             .planes = CeilDiv(args.k, kBlockK),
                             .batch = args.batch,
                             .plane_stride_bytes = args.a_scales_ld * 4,
                             .batch_stride_bytes = args.a_scales_batch * 4,
                             .box_cols = config.a_scale_rows(),
                             .box_rows = 1};
  for (auto [map, made] : {std::pair(&launch.row_map, ValuesMap(config.skinny() ? b : a)),
                           std::pair(&launch.col_map, ValuesMap(config.skinny() ? a : b)),
                           std::pair(&launch.scale_map, ScalesMap(scales))}) {
    if (!made.ok()) return made.status();
    *map = *made;
  }
  return absl::OkStatus();
}

}  // namespace

std::string AloneWhyNot(DType d, int64_t n) {
  if (d != DType::kE4M3) {
    return StrCat("d is ", Text(Name(d)), "; the fused gate writes e4m3");
  }
  if (n % kUnitBytes == 0) return "";
  return StrCat("n=", n, " is not a multiple of ", kUnitBytes,
                "; pad the weights to fuse the gate");
}

std::string GateWhyNot(DType d, int64_t n, int64_t period) {
  if (d != DType::kE4M3) {
    return StrCat("d is ", Text(Name(d)), "; the fused gate writes e4m3");
  }
  if (n / 2 % kGateCols != 0) {
    return StrCat("n/2=", n / 2, " is not a multiple of ", kGateCols,
                  "; pad the weights to fuse the gate");
  }
  if (period % kGateCols != 0) {
    return StrCat("gate and up change after ", period, " columns, not a multiple of ", kGateCols,
                  "; use halves to fuse the gate");
  }
  return "";
}

std::string GateResultWhyNot(const OperandTraits& d) {
  if (d.layout != Layout::kKContiguous) return "d is not contiguous along n; use a row-major d";
  if (d.alignment_bytes % kUnitBytes == 0) return "";
  return StrCat("rows of d start at multiples of ", d.alignment_bytes,
                " bytes only; place them at multiples of ", kUnitBytes, " to fuse the gate");
}

std::string WhyNotFused(const Gate& gate, int64_t n, const TensorRef& d) {
  if (std::string why = GateWhyNot(d.dtype, n, gate.period); !why.empty()) return why;
  const int rank = d.shape.rank;
  if (d.strides[rank - 1] != 1) return "d is not contiguous along n; use a row-major d";
  if (d.offset_bytes % kUnitBytes != 0) {
    return StrCat("d starts at byte ", d.offset_bytes, ", not a multiple of ", kUnitBytes,
                  "; place it there to fuse the gate");
  }
  for (int i = 0; i + 1 < rank; ++i) {
    if (d.shape[i] > 1 && d.strides[i] % kUnitBytes != 0) {
      return StrCat("d has a stride of ", d.strides[i], " bytes, not a multiple of ", kUnitBytes,
                    "; pad its rows to fuse the gate");
    }
  }
  return "";
}

absl::StatusOr<FusedGate> PrepareGate(int config, const GemmArgs& args, const GatedArgs& gated,
                                      int64_t matrices, int64_t row_tiles, int sms) {
  const absl::Status ready =
      ToStatus(kSm90Fp8Gate.prepare(config, gated.alone), "preparing a gate's kernel");
  if (!ready.ok()) return ready;
  FusedGate gate;
  gate.config = config;
  GateLaunch& launch = gate.launch;
  const GemmConfig& shape = kSm90Fp8Gate.configs[config];
  if (absl::Status made = MakeMaps(shape, args, matrices, launch.gemm); !made.ok()) return made;
  launch.gemm.args = args;
  launch.gemm.k_blocks = static_cast<int>(CeilDiv(args.k, kBlockK));
  launch.gated = gated;
  launch.n_tiles = static_cast<int>(CeilDiv(args.n, shape.block_n()));
  launch.band = shape.skinny() ? kThinBand : kWideBand;
  launch.per_band = MakeDivisor(int64_t{launch.band} * launch.n_tiles);
  launch.band_rows = MakeDivisor(launch.band);
  launch.period_tiles = MakeDivisor(gated.alone ? 1 : gated.period / kGateCols);
  gate.ctas = static_cast<int>(std::min<int64_t>(sms, row_tiles * launch.n_tiles));
  return gate;
}

cudaError_t LaunchGate(const FusedGate& gate, bool programmatic, cudaStream_t stream) {
  if (gate.ctas == 0) return cudaSuccess;
  GateLaunch launch = gate.launch;
  launch.gemm.programmatic = programmatic;
  return kSm90Fp8Gate.launch(gate.config, launch, gate.ctas, stream);
}

}  // namespace gemmd::kernels::cuda
