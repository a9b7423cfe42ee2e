#include "bench/serving/device_busy.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "gemmd/v1/device_service.pb.h"

namespace gemmd::bench {

absl::StatusOr<BusyMeter> BusyMeter::Start(client::Client& client,
                                           std::vector<std::string> devices) {
  BusyMeter meter(client, std::move(devices));
  absl::StatusOr<Sample> start = meter.Look();
  if (!start.ok()) return start.status();
  meter.start_ = *start;
  return meter;
}

absl::StatusOr<BusyShare> BusyMeter::Stop() const {
  absl::StatusOr<Sample> end = Look();
  if (!end.ok()) return end.status();
  BusyShare share;
  share.seconds = absl::ToDoubleSeconds(end->at - start_.at);
  share.busy = (end->busy_seconds - start_.busy_seconds) / share.seconds;
  share.programs = end->programs - start_.programs;
  return share;
}

absl::StatusOr<BusyMeter::Sample> BusyMeter::Look() const {
  const absl::Time asked = absl::Now();
  absl::StatusOr<std::vector<v1::Device>> devices = client_->ListDevices();
  if (!devices.ok()) return devices.status();
  // The daemon looked somewhere in between.
  Sample sample = {.at = asked + (absl::Now() - asked) / 2};
  for (const v1::Device& device : *devices) {
    if (std::find(devices_.begin(), devices_.end(), device.name()) == devices_.end()) continue;
    sample.busy_seconds += device.busy_seconds();
    sample.programs += device.programs();
  }
  return sample;
}

}  // namespace gemmd::bench
