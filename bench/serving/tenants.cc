#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/percentiles.h"
#include "bench/serving/pump.h"
#include "bench/serving/suite.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::bench {
namespace {

// Of the small tenant: one queue's window of 20 us programs is drained sooner than gRPC refills it.
constexpr int kSmallQueues = 4;
constexpr int64_t kMaxRepeats = 4000;  // below limits.max_ops

struct Tenant {
  client::Client client;
  client::Session session;
  ResidentMatmul matmul;
  client::OpList program;
  double device_seconds = 0;  // of the program, alone
};

// Connects to `target` and repeats a matmul until a program of it takes about `seconds`.
absl::StatusOr<std::unique_ptr<Tenant>> Open(const Serving& serving, const std::string& target,
                                             double seconds) {
  auto tenant = std::make_unique<Tenant>();
  absl::StatusOr<client::Client> client = client::Client::Connect(target, serving.options);
  if (!client.ok()) return client.status();
  tenant->client = *std::move(client);
  absl::StatusOr<client::Session> session =
      tenant->client.OpenSession({.label = "gemmd_bench tenant", .device = serving.device});
  if (!session.ok()) return session.status();
  tenant->session = *std::move(session);
  absl::StatusOr<ResidentMatmul> matmul =
      MakeResident(tenant->session, Fp8Spec(serving.sizes.unary));
  if (!matmul.ok()) return matmul.status();
  tenant->matmul = *std::move(matmul);

  const auto time = [&](const client::OpList& ops) -> absl::StatusOr<double> {
    Latencies device;
    for (int i = 0; i < 10; ++i) {
      absl::StatusOr<client::Result> result = tenant->session.Execute(ops);
      if (!result.ok()) return result.status();
      device.Add(result->report().device_seconds());
    }
    return device.Percentile(50);
  };
  constexpr int64_t kTrial = 16;
  absl::StatusOr<double> trial = time(tenant->matmul.Repeated(kTrial));
  if (!trial.ok()) return trial.status();
  if (*trial <= 0) return absl::InternalError("the daemon reports no device time");
  const auto repeats = std::clamp<int64_t>(
      std::llround(seconds / (*trial / static_cast<double>(kTrial))), 1, kMaxRepeats);
  tenant->program = tenant->matmul.Repeated(repeats);
  absl::StatusOr<double> program = time(tenant->program);
  if (!program.ok()) return program.status();
  tenant->device_seconds = *program;
  return tenant;
}

absl::Status MeasureShares(const Serving& serving, Tenant& small, Tenant& large, Figure& figure) {
  std::vector<std::unique_ptr<Pump>> small_pumps;
  for (int i = 0; i < kSmallQueues; ++i) {
    absl::StatusOr<std::unique_ptr<Pump>> pump = Pump::Start(small.session, small.program);
    if (!pump.ok()) return pump.status();
    small_pumps.push_back(*std::move(pump));
  }
  absl::StatusOr<std::unique_ptr<Pump>> large_pump = Pump::Start(large.session, large.program);
  if (!large_pump.ok()) return large_pump.status();
  const auto small_seconds = [&] {
    double sum = 0;
    for (const auto& pump : small_pumps) sum += pump->count().device_seconds;
    return sum;
  };
  absl::SleepFor(serving.sizes.warm_up);
  const double small_before = small_seconds();
  const double large_before = (*large_pump)->count().device_seconds;
  const absl::Time start = absl::Now();
  absl::SleepFor(serving.sizes.duration * 2);
  const double small_used = small_seconds() - small_before;
  const double large_used = (*large_pump)->count().device_seconds - large_before;
  const double wall = absl::ToDoubleSeconds(absl::Now() - start);
  absl::Status status = (*large_pump)->status();
  for (const auto& pump : small_pumps) status.Update(pump->status());
  if (!status.ok()) return status;
  if (large_used <= 0 || small_used <= 0) {
    return absl::InternalError("a tenant got no device time in the time of the measurement");
  }
  figure.seen = std::abs(small_used / large_used - 1);
  figure.detail = {{"small_device_share", small_used / wall},
                   {"large_device_share", large_used / wall},
                   {"small_program_us", small.device_seconds * 1e6},
                   {"large_program_us", large.device_seconds * 1e6}};
  return absl::OkStatus();
}

// One small program at a time, while the large ones keep the device.
absl::Status MeasureWaits(const Serving& serving, Tenant& small, Tenant& large, Figure& figure) {
  absl::StatusOr<std::unique_ptr<Pump>> pump = Pump::Start(large.session, large.program);
  if (!pump.ok()) return pump.status();
  absl::SleepFor(serving.sizes.warm_up);
  Latencies waits;
  const absl::Time end = absl::Now() + serving.sizes.duration * 2;
  while (absl::Now() < end) {
    absl::StatusOr<client::Result> result = small.session.Execute(small.program);
    if (!result.ok()) return result.status();
    waits.Add(result->report().queue_seconds());
  }
  if (absl::Status status = (*pump)->status(); !status.ok()) return status;
  figure.wanted = 2e6 * (absl::ToDoubleSeconds(serving.lookahead) + large.device_seconds);
  figure.seen = waits.Percentile(99) * 1e6;
  figure.detail = {{"p50_us", waits.Percentile(50) * 1e6},
                   {"max_us", waits.max() * 1e6},
                   {"count", waits.count()},
                   {"lookahead_us", absl::ToDoubleMicroseconds(serving.lookahead)},
                   {"large_program_us", large.device_seconds * 1e6}};
  return absl::OkStatus();
}

}  // namespace

std::vector<Figure> MeasureTenants(const Serving& serving) {
  const ServingSizes& sizes = serving.sizes;
  Figure shares = {.key = "tenant_share_difference",
                   .what = absl::StrCat("device time of a tenant of ",
                                        cli::HumanSeconds(sizes.small_program_seconds),
                                        " programs against one of ",
                                        cli::HumanSeconds(sizes.large_program_seconds),
                                        ", both with work waiting, off from equal"),
                   .wanted = 0.05,
                   .at_most = true};
  // Programs are not interrupted: what was handed to the device ahead is up to the look-ahead, and
  // then one program more.
  Figure waits = {.key = "tenant_small_wait_p99",
                  .what =
                      "wait of a small program beside the large ones, p99; wanted: twice the "
                      "look-ahead and one large program",
                  .unit = "us",
                  .at_most = true};
  const auto missing = [&](const absl::Status& status) {
    return std::vector<Figure>{Missing(shares, status), Missing(waits, status)};
  };
  if (serving.small_target.empty() || serving.large_target.empty()) {
    return missing(absl::FailedPreconditionError(
        "give --small and --large, listeners of two tenants of equal weight"));
  }
  absl::StatusOr<std::unique_ptr<Tenant>> small =
      Open(serving, serving.small_target, sizes.small_program_seconds);
  if (!small.ok()) return missing(small.status());
  absl::StatusOr<std::unique_ptr<Tenant>> large =
      Open(serving, serving.large_target, sizes.large_program_seconds);
  if (!large.ok()) return missing(large.status());
  if (absl::Status status = MeasureShares(serving, **small, **large, shares); !status.ok()) {
    shares = Missing(shares, status);
  }
  if (absl::Status status = MeasureWaits(serving, **small, **large, waits); !status.ok()) {
    waits = Missing(waits, status);
  }
  return {shares, waits};
}

}  // namespace gemmd::bench
