#include "server/guard/metrics.h"

#include <string>

namespace gemmd::guard {

using server::FamilyBuilder;

void ReadConnections(const Connections& connections, server::Families& families) {
  const ConnectionCounts counts = connections.counts();
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    families.Gauge(name, help).Add({}, static_cast<double>(value));
  };
  gauge("gemmd_connections", "Connections of clients that are open.", counts.open);
  gauge("gemmd_connections_limit", "Connections that may be open.", connections.limits().max);
  gauge("gemmd_unfinished_request_bytes",
        "Bytes of unfinished requests on connections on which no call was admitted yet.",
        counts.unfinished_bytes);
  FamilyBuilder& refused =
      families.Counter("gemmd_connections_refused_total",
                       "Connections that were closed or left waiting when they came.");
  for (int i = 1; i < kRefusals; ++i) {
    refused.Add({{"reason", std::string(Name(static_cast<Refusal>(i)))}},
                static_cast<double>(counts.refused[i]));
  }
  FamilyBuilder& cut =
      families.Counter("gemmd_connections_cut_total",
                       "Connections that were cut because their frames exceeded a limit.");
  for (int i = 1; i < kBreaches; ++i) {
    cut.Add({{"reason", std::string(Name(static_cast<Breach>(i)))}},
            static_cast<double>(counts.cut[i]));
  }
}

}  // namespace gemmd::guard
