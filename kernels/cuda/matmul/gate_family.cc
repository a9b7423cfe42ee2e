#include "kernels/cuda/matmul/gate_family.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/fused_gate.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/matmul/problem_args.h"
#include "kernels/cuda/rounding.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StrCat;

constexpr int64_t kMostTiles = int64_t{1} << 25;

const GemmConfig& ConfigAt(int config) { return kSm90Fp8Gate.configs[config]; }

// Few rows fill WGMMA's columns; more fill its rows.
int ConfigFor(int64_t m) {
  for (const int config : {kGateFewConfig, kGateThinConfig}) {
    if (m <= ConfigAt(config).block_m()) return config;
  }
  return kGateWideConfig;
}

int64_t RowTiles(int64_t batch, int64_t m) {
  return batch * CeilDiv(m, ConfigAt(ConfigFor(m)).block_m());
}

// A tile has as many columns of b, whatever they become.
int64_t ColTiles(const MatmulProblem& p) { return CeilDiv(p.n, 2 * kGateCols); }

class GateMatmul final : public PreparedMatmul {
 public:
  GateMatmul(std::optional<ScaleLayoutArgs> copy, FusedGate gate)
      : copy_(std::move(copy)), gate_(std::move(gate)) {}

  absl::Status Launch(bool overlap, cudaStream_t stream) const override {
    cudaError_t code = cudaSuccess;
    if (copy_) {
      ScaleLayoutArgs copy = *copy_;
      copy.programmatic = overlap;
      code = LaunchScaleLayout(copy, stream);
    }
    if (code == cudaSuccess) code = LaunchGate(gate_, overlap || copy_, stream);
    return ToStatus(code, "launching a matmul with a gate");
  }

 private:
  const std::optional<ScaleLayoutArgs> copy_;  // of a's scales
  const FusedGate gate_;
};

}  // namespace

GateFamily::GateFamily(DeviceTraits device, double memory_bytes_per_s)
    : device_(std::move(device)),
      memory_bytes_per_s_(memory_bytes_per_s),
      infos_{{kFp8GateName, kFp8GateName,
              "e4m3, dense and grouped, with a gate, whose result leaves as e4m3 without a product "
              "in memory: gates and ups in halves, or in turns of a multiple of 128 columns"}} {}

std::string GateFamily::WhyNot(int, const MatmulProblem& p) const {
  if (std::string why = cuda::WhyNot(device_); !why.empty()) return why;
  if (p.gate_period == 0) return "there is no gate, which these kernels are for";
  std::string why = OperandsWhyNot(Mma::kFp8Block, p);
  if (why.empty() && p.gate_alone) why = AloneWhyNot(p.d.dtype, p.n);
  if (why.empty() && !p.gate_alone) why = GateWhyNot(p.d.dtype, p.n, p.gate_period);
  if (why.empty()) why = GateResultWhyNot(p.d);
  if (!why.empty()) return why;
  if (p.has_bias && !p.gate_alone) {
    return "it has a bias, which the fused kernels add to gates alone; drop it, or take another";
  }
  if (p.has_bias && p.bias_stride != 1) return "the bias is not contiguous; copy it";
  if (UnplacedArgs(p).b.scales.k_stride != 1 && CeilDiv(p.k, kScaleBlock) > 1) {
    return "scales of b are not contiguous along k; copy them";
  }
  if (ScratchBytes(0, p) > kMaxScratchBytes) {
    return StrCat("a copy of a's scales takes more than ", kMaxScratchBytes,
                  " bytes; lay them out along m");
  }
  if (RowTiles(p.batch, p.m) > kMostTiles / ColTiles(p)) {
    return StrCat("it has more than ", kMostTiles, " tiles; split the op");
  }
  return "";
}

double GateFamily::Seconds(int, const MatmulProblem& p) const {
  // Clocks of a k block in one CTA, by config: the chains of both warpgroups, and what of their
  // promotion nothing hides. The clock is that under load.
  constexpr double kClocks[] = {700, 1090, 450};
  // Of gates alone a tile's finish: twice the columns, and a GELU's instructions, which few warps
  // issue while no WGMMA runs. An H200 takes 8.3 us of 128 rows (5.2 without an activation), and
  // another 4 a round where a matmul comes next.
  constexpr double kAloneSeconds[] = {4e-6, 12e-6, 1.5e-6};
  constexpr double kClockHz = 1.6e9, kMemoryShare = 0.85, kStartSeconds = 3e-6,
                   kGatedSeconds = 2e-6;
  const int64_t tiles = RowTiles(p.batch, p.m) * ColTiles(p);
  const double waves = static_cast<double>(CeilDiv(tiles, std::max(device_.sms, 1)));
  const double blocks = static_cast<double>(CeilDiv(p.k, kScaleBlock));
  const int config = ConfigFor(p.m);
  const double finish = p.gate_alone ? kAloneSeconds[config] : kGatedSeconds;
  const double compute = waves * (blocks * kClocks[config] / kClockHz + finish);
  const double rate = memory_bytes_per_s_ > 0 ? memory_bytes_per_s_ : 4e12;
  return kStartSeconds + std::max(compute, p.bytes() / (rate * kMemoryShare));
}

int64_t GateFamily::ScratchBytes(int, const MatmulProblem& problem) const {
  return CopiesOfA(UnplacedArgs(problem)).scratch_bytes;
}

absl::StatusOr<std::unique_ptr<const PreparedMatmul>> GateFamily::Prepare(
    int, const MatmulArgs& args, std::byte* scratch) const {
  const AnyGemmArgs& g = args.gemm;
  // As the problem has it, which the scratch was made for.
  const ScaleCopies copies = CopiesOfA(UnplacedArgs(args.problem));
  const bool one_b = g.b.batch_stride == 0;
  const int config = ConfigFor(g.m);
  auto gate = PrepareGate(config, GemmArgsOf(g, copies, scratch), *args.gate, one_b ? 1 : g.batch,
                          RowTiles(g.batch, g.m), device_.sms);
  if (!gate.ok()) return gate.status();
  gate->launch.gemm.one_b = one_b;
  gate->launch.item_tiles = MakeDivisor(CeilDiv(g.m, ConfigAt(config).block_m()));
  return std::make_unique<GateMatmul>(CopyOfA(g, copies, scratch), *std::move(gate));
}

}  // namespace gemmd::kernels::cuda
