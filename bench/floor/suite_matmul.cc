#include "absl/time/clock.h"
#include "bench/floor/suite.h"
#include "bench/load/percentiles.h"
#include "bench/load/resident.h"

namespace gemmd::bench {
namespace {

constexpr int kMatmulRounds = 5;
constexpr int kRepeats = 3;  // of a round
constexpr int64_t kExtent = 2048;
constexpr double kFlops = 2.0 * kExtent * kExtent * kExtent;

// Threads of the side just measured may spin for a while before they sleep; they must not take the
// other's cores.
void LetThreadsSleep() { absl::SleepFor(absl::Milliseconds(100)); }

absl::StatusOr<double> ExecuteRate(client::Session& session, const client::OpList& ops) {
  LetThreadsSleep();
  std::vector<double> seconds;
  for (int i = 0; i <= kRepeats; ++i) {
    const absl::Time start = absl::Now();
    absl::StatusOr<client::Result> result = session.Execute(ops);
    if (!result.ok()) return result.status();
    if (i > 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
  }
  return kFlops / Median(seconds) / 1e9;
}

absl::StatusOr<double> OpenBlasRate(PeerProcess& peer) {
  LetThreadsSleep();
  absl::StatusOr<double> seconds = peer.Sgemm(kExtent, kRepeats);
  if (!seconds.ok()) return seconds;
  return kFlops / *seconds / 1e9;
}

}  // namespace

absl::StatusOr<std::vector<Ratio>> MeasureMatmuls(const Floor& floor) {
  struct Case {
    RatioSpec ratio;
    ResidentSpec matmul;
  };
  const Case cases[] = {
      {{.key = "fp32_2048_over_openblas",
        .ours = "Execute of 2048^3 FP32",
        .theirs = "cblas_sgemm called directly",
        .unit = "GFLOP/s",
        .target = 0.95},
       {.m = kExtent, .n = kExtent, .k = kExtent}},
      {{.key = "fp8_block_2048_over_openblas",
        .ours = "Execute of 2048^3 FP8 with block scales, BF16 out",
        .theirs = "cblas_sgemm (FP32) called directly",
        .unit = "GFLOP/s",
        .target = 0.75},
       {.m = kExtent,
        .n = kExtent,
        .k = kExtent,
        .out_dtype = client::DType::kBF16,
        .quantize = cli::QuantizeModeOf("fp8-block")}},
  };
  std::vector<Ratio> ratios;
  for (const Case& one : cases) {
    absl::StatusOr<ResidentMatmul> resident = MakeResident(floor.session, one.matmul);
    if (!resident.ok()) return resident.status();
    ratios.push_back(MeasureRatio(
        one.ratio, kMatmulRounds, [&] { return ExecuteRate(floor.session, resident->ops); },
        [&] { return OpenBlasRate(floor.peer); }));
  }
  return ratios;
}

}  // namespace gemmd::bench
