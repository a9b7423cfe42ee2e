// gemmd_connections and its like, read at each scrape.

#ifndef GEMMD_SERVER_GUARD_METRICS_H_
#define GEMMD_SERVER_GUARD_METRICS_H_

#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "server/guard/connections.h"

namespace gemmd::guard {

class Metrics : public prometheus::Collectable {
 public:
  // `connections` must outlive this.
  explicit Metrics(const Connections& connections) : connections_(connections) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Connections& connections_;
};

}  // namespace gemmd::guard

#endif  // GEMMD_SERVER_GUARD_METRICS_H_
