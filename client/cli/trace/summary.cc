#include "client/cli/trace/summary.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gemmd::cli {

double TraceSummary::DeviceUse::Busy(absl::Duration lasted) const {
  return lasted > absl::ZeroDuration() ? busy_seconds / absl::ToDoubleSeconds(lasted) : 0;
}

void TraceSummary::Add(const v1::TraceEvent& event) {
  ++events_;
  if (event.kind() == v1::TraceEvent::KIND_CALL) ++calls_;
  if (event.kind() == v1::TraceEvent::KIND_TRANSFER) transfer_bytes_ += event.bytes();
  const bool ran = event.kind() == v1::TraceEvent::KIND_DEVICE;
  if (!ran && event.kind() != v1::TraceEvent::KIND_QUEUE) return;
  DeviceUse& use = devices_[event.device()];
  if (ran) {
    // What it did before the trace began is none of it.
    const int64_t inside_ns =
        event.begin_ns() + event.duration_ns() - std::max<int64_t>(event.begin_ns(), 0);
    use.busy_seconds += static_cast<double>(std::max<int64_t>(inside_ns, 0)) * 1e-9;
    ++use.programs;
  } else {
    use.wait_seconds += static_cast<double>(event.duration_ns()) * 1e-9;
    ++use.waits;
  }
}

Json TraceSummary::ToJson(absl::Duration lasted) const {
  Json document = {{"seconds", absl::ToDoubleSeconds(lasted)},
                   {"events", events_},
                   {"dropped", dropped_},
                   {"calls", calls_},
                   {"transfer_bytes", transfer_bytes_},
                   {"devices", Json::array()}};
  for (const auto& [name, use] : devices_) {
    document["devices"].push_back({{"name", name},
                                   {"busy", use.Busy(lasted)},
                                   {"programs", use.programs},
                                   {"mean_wait_seconds", use.MeanWait()}});
  }
  return document;
}

std::string TraceSummary::Text(absl::Duration lasted) const {
  std::vector<std::vector<std::string>> rows = {{"device", "busy", "programs", "mean wait"}};
  for (const auto& [name, use] : devices_) {
    rows.push_back({name, absl::StrFormat("%.1f %%", use.Busy(lasted) * 100),
                    absl::StrCat(use.programs), HumanSeconds(use.MeanWait())});
  }
  return absl::StrCat(events_, " events in ", HumanSeconds(absl::ToDoubleSeconds(lasted)), ", ",
                      dropped_, " dropped; ", calls_, " calls, ",
                      HumanBytes(static_cast<double>(transfer_bytes_)), " by Upload and Download\n",
                      Table(rows));
}

}  // namespace gemmd::cli
