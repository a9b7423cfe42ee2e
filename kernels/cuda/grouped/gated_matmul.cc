#include "kernels/cuda/grouped/gated_matmul.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

constexpr int64_t kAlignment = 256;  // of the product in scratch, and of what slots start at
constexpr int64_t kMostTiles = int64_t{1} << 25;

int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

const GemmConfig& ConfigAt(int config) { return kSm90Fp8Gate.configs[config]; }

// Few rows fill WGMMA's columns; more fill its rows.
int ConfigFor(int64_t m) {
  for (const int config : {kGateFewConfig, kGateThinConfig}) {
    if (m <= ConfigAt(config).block_m()) return config;
  }
  return kGateWideConfig;
}

int SlotsOf(const MatmulOp& op) {
  int slots = 0;
  ForEachTensor(Op(op),
                [&](const TensorRef& tensor, Access) { slots = std::max(slots, tensor.slot + 1); });
  return slots;
}

// The extents and strides of the product, before slots are bound.
AnyGemmArgs Unbound(const MatmulOp& op) {
  const std::vector<std::byte*> somewhere(SlotsOf(op) + 1,
                                          reinterpret_cast<std::byte*>(uintptr_t{kAlignment}));
  return ArgsOf(ProductOf(op), somewhere);
}

int64_t RowTiles(const AnyGemmArgs& g) {
  return g.batch * CeilDiv(g.m, ConfigAt(ConfigFor(g.m)).block_m());
}

}  // namespace

MatmulOp ProductOf(const MatmulOp& op) {
  return ProductOf(op, op.d.dtype == DType::kF32 ? DType::kF32 : DType::kBF16, SlotsOf(op));
}

std::string WhyNotFused(const MatmulOp& op) {
  std::string why = OperandWhyNot("a", op.a, ScaleGranularity::kBlock1x128);
  if (why.empty()) why = OperandWhyNot("b", op.b, ScaleGranularity::kBlock128x128);
  if (!why.empty()) return why;
  const AnyGemmArgs g = Unbound(op);
  if (g.batch == 0 || g.m == 0 || g.n == 0 || g.k == 0) return "there is nothing to multiply";
  if (why = WhyNotFused(*op.gate, g.n, op.d); !why.empty()) return why;
  if (op.bias) return "it has a bias; the fused kernels add none";
  if (op.alpha == 0) return "alpha is 0: a and b must not be read";
  if (g.batch > 1 && g.a.batch_stride == 0) {
    return "all matrices of a's batch are one (stride 0); multiply it as one matrix";
  }
  if (g.b.scales.k_stride != 1 && CeilDiv(g.k, kScaleBlock) > 1) {
    return "scales of b are not contiguous along k; copy them";
  }
  if (RowTiles(g) > kMostTiles / (g.n / 2 / kGateCols)) {
    return StrCat("it has more than ", kMostTiles, " tiles; split the op");
  }
  return "";
}

double FusedSeconds(const MatmulOp& op, const DeviceTraits& device, double memory_bytes_per_s) {
  // Clocks of a k block in one CTA, by config: the chains of both warpgroups, and what of their
  // promotion nothing hides. The clock is that under load.
  constexpr double kClocks[] = {700, 1090, 450};
  constexpr double kClockHz = 1.6e9, kMemoryShare = 0.85, kStartSeconds = 3e-6,
                   kFinishSeconds = 2e-6;
  const AnyGemmArgs g = Unbound(op);
  const int64_t tiles = RowTiles(g) * (g.n / 2 / kGateCols);
  const double waves = static_cast<double>(CeilDiv(tiles, std::max(device.sms, 1)));
  const double blocks = static_cast<double>(CeilDiv(g.k, kScaleBlock));
  const double compute = waves * (blocks * kClocks[ConfigFor(g.m)] / kClockHz + kFinishSeconds);
  const double rate = memory_bytes_per_s > 0 ? memory_bytes_per_s : 4e12;
  return kStartSeconds + std::max(compute, Bytes(op) / (rate * kMemoryShare));
}

GatedLayout FusedLayout(const MatmulOp& op) {
  GatedLayout layout;
  layout.fused = true;
  layout.copies = CopiesOfA(Unbound(op));
  layout.scratch_bytes = layout.copies.scratch_bytes;
  return layout;
}

GatedLayout ApartLayout(const MatmulOp& op, int64_t product_scratch) {
  GatedLayout layout;
  layout.product = ProductOf(op);
  const TensorRef& d = layout.product->d;
  layout.product_offset = CeilDiv(product_scratch, kAlignment) * kAlignment;
  layout.scratch_bytes =
      layout.product_offset + NumElements(d.shape).value_or(0) * SizeBytes(d.dtype);
  return layout;
}

absl::StatusOr<FusedMatmul> PrepareFused(const MatmulOp& op, const GatedLayout& layout,
                                         SlotAddresses slots, std::byte* scratch,
                                         const DeviceTraits& device) {
  // The product's d is not looked at: any address will do.
  std::vector<std::byte*> all(slots.begin(), slots.begin() + SlotsOf(op));
  all.push_back(scratch);
  const MatmulOp product = ProductOf(op);
  const AnyGemmArgs g = ArgsOf(product, all);
  FusedMatmul fused;
  fused.copy = CopyOfA(g, layout.copies, scratch);
  const int config = ConfigFor(g.m);
  const GatedArgs gated = ArgsOf(GatedOf(*op.gate, product.d, op.d, op.d_scales), all);
  const bool one_b = g.b.batch_stride == 0;
  auto gate = PrepareGate(config, Fp8ArgsOf(g, layout.copies, scratch), gated, one_b ? 1 : g.batch,
                          RowTiles(g), device.sms);
  if (!gate.ok()) return gate.status();
  fused.gate = *std::move(gate);
  fused.gate.launch.gemm.one_b = one_b;
  fused.gate.launch.item_tiles = MakeDivisor(CeilDiv(g.m, ConfigAt(config).block_m()));
  return fused;
}

absl::Status QueueFused(const FusedMatmul& fused, bool overlap, cudaStream_t stream) {
  cudaError_t code = cudaSuccess;
  if (fused.copy) {
    ScaleLayoutArgs copy = *fused.copy;
    copy.programmatic = overlap;
    code = LaunchScaleLayout(copy, stream);
  }
  if (code == cudaSuccess) code = LaunchGate(fused.gate, overlap || fused.copy, stream);
  return ToStatus(code, "launching a matmul with a gate");
}

}  // namespace gemmd::kernels::cuda
