#include "server/guard/metrics.h"

#include <string>
#include <utility>

#include "server/engine/observe/exposition.h"

namespace gemmd::guard {
namespace {

using prometheus::MetricType;
using server::FamilyBuilder;

}  // namespace

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  const ConnectionCounts counts = connections_.counts();
  std::vector<prometheus::MetricFamily> families;
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    FamilyBuilder family(name, help, MetricType::Gauge);
    family.Add({}, static_cast<double>(value));
    std::move(family).AppendTo(families);
  };
  gauge("gemmd_connections", "Connections of clients that are open.", counts.open);
  gauge("gemmd_connections_limit", "Connections that may be open.", connections_.limits().max);
  gauge("gemmd_unfinished_request_bytes",
        "Bytes of unfinished requests on connections on which no call was admitted yet.",
        counts.unfinished_bytes);
  FamilyBuilder refused("gemmd_connections_refused_total",
                        "Connections that were closed or left waiting when they came.",
                        MetricType::Counter);
  for (int i = 1; i < kRefusals; ++i) {
    refused.Add({{"reason", std::string(Name(static_cast<Refusal>(i)))}},
                static_cast<double>(counts.refused[i]));
  }
  std::move(refused).AppendTo(families);
  FamilyBuilder cut("gemmd_connections_cut_total",
                    "Connections that were cut because their frames exceeded a limit.",
                    MetricType::Counter);
  for (int i = 1; i < kBreaches; ++i) {
    cut.Add({{"reason", std::string(Name(static_cast<Breach>(i)))}},
            static_cast<double>(counts.cut[i]));
  }
  std::move(cut).AppendTo(families);
  return families;
}

}  // namespace gemmd::guard
