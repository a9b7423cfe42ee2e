// How busy devices were between two moments, by the daemon's own account.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"

namespace gemmd::bench {

struct BusyShare {
  double busy = 0;     // of the wall time, summed over the devices
  double seconds = 0;  // wall time
  int64_t programs = 0;
};

class BusyMeter {
 public:
  static absl::StatusOr<BusyMeter> Start(client::Client& client, std::vector<std::string> devices);
  absl::StatusOr<BusyShare> Stop() const;

 private:
  struct Sample {
    absl::Time at;
    double busy_seconds = 0;
    int64_t programs = 0;
  };
  BusyMeter(client::Client& client, std::vector<std::string> devices)
      : client_(&client), devices_(std::move(devices)) {}
  absl::StatusOr<Sample> Look() const;

  client::Client* client_;
  std::vector<std::string> devices_;
  Sample start_;
};

}  // namespace gemmd::bench
