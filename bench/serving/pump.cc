#include "bench/serving/pump.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/time/clock.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::bench {

absl::StatusOr<std::unique_ptr<Pump>> Pump::Start(client::Session& session, client::OpList ops,
                                                  bool gather) {
  absl::StatusOr<client::Queue> queue =
      session.OpenQueue({.report = client::ReportLevel::kSummary, .gather = gather});
  if (!queue.ok()) return queue.status();
  auto pump = absl::WrapUnique(new Pump(std::move(ops)));
  pump->queue_ = *std::move(queue);
  pump->thread_ = std::thread([raw = pump.get()] { raw->Run(); });
  return pump;
}

Pump::~Pump() {
  stop_ = true;
  thread_.join();
}

void Pump::Run() {
  const auto completed = [this](const absl::StatusOr<client::Result>& result) {
    absl::MutexLock lock(&mu_);
    if (result.ok()) {
      ++count_.batches;
      count_.device_seconds += result->report().device_seconds();
    } else if (!stop_) {
      status_.Update(result.status());
    }
  };
  while (!stop_) {
    // A device that stands still must not keep this thread: the window opens at every completion.
    absl::Status sent = queue_.Submit(ops_, completed, {.timeout = absl::Seconds(20)});
    if (sent.ok()) continue;
    absl::MutexLock lock(&mu_);
    status_.Update(sent);
    return;
  }
}

Pump::Count Pump::count() const {
  absl::MutexLock lock(&mu_);
  return count_;
}

absl::Status Pump::status() const {
  absl::MutexLock lock(&mu_);
  return status_;
}

absl::StatusOr<double> PumpedRate(client::Session& session, const client::OpList& ops, bool gather,
                                  absl::Duration warm_up, absl::Duration duration) {
  absl::StatusOr<std::unique_ptr<Pump>> pump = Pump::Start(session, ops, gather);
  if (!pump.ok()) return pump.status();
  absl::SleepFor(warm_up);
  const int64_t before = (*pump)->count().batches;
  const absl::Time start = absl::Now();
  absl::SleepFor(duration);
  const int64_t after = (*pump)->count().batches;
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  if (absl::Status status = (*pump)->status(); !status.ok()) return status;
  if (after == before) return absl::InternalError("no batch completed");
  return static_cast<double>(after - before) / seconds;
}

}  // namespace gemmd::bench
