#include "client/cli/serving/pump.h"

#include <utility>

#include "absl/memory/memory.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::cli {

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

}  // namespace gemmd::cli
