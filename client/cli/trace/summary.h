// What a trace comes to: how busy each device was and how long its programs waited.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cli/args/output.h"
#include "gemmd/v1/admin_service.pb.h"

namespace gemmd::cli {

class TraceSummary {
 public:
  void AddDevice(absl::string_view name) { devices_[std::string(name)]; }
  void Add(const v1::TraceEvent& event);
  void set_dropped(int64_t dropped) { dropped_ = dropped; }
  int64_t dropped() const { return dropped_; }

  // Of a trace that lasted so long.
  Json ToJson(absl::Duration lasted) const;
  std::string Text(absl::Duration lasted) const;

 private:
  struct DeviceUse {
    double busy_seconds = 0;
    double wait_seconds = 0;
    int64_t programs = 0;
    int64_t waits = 0;  // of programs that never ran, too
    double Busy(absl::Duration lasted) const;
    double MeanWait() const { return waits > 0 ? wait_seconds / static_cast<double>(waits) : 0; }
  };

  int64_t events_ = 0;
  int64_t calls_ = 0;
  int64_t transfer_bytes_ = 0;
  int64_t dropped_ = 0;
  std::map<std::string, DeviceUse> devices_;
};

}  // namespace gemmd::cli
