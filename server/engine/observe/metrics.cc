#include "server/engine/observe/metrics.h"

#include <type_traits>
#include <utility>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/labels.h"
#include "server/engine/observe/exposition.h"
#include "server/engine/reason.h"

namespace gemmd::server {
namespace {

// Far above devices x kernels x dtypes x states of any one family; reached only by a label that
// should not have been one.
constexpr int kMaxSeries = 10000;

template <typename Metric>
auto Builder() {
  if constexpr (std::is_same_v<Metric, prometheus::Counter>) {
    return prometheus::BuildCounter();
  } else if constexpr (std::is_same_v<Metric, prometheus::Gauge>) {
    return prometheus::BuildGauge();
  } else {
    return prometheus::BuildHistogram();
  }
}

}  // namespace

template <typename Metric, int kLabels>
Kept<Metric, kLabels>::Kept(Exposition& exposition, const char* name, const char* help,
                            const std::array<const char*, kLabels>& labels,
                            const std::vector<double>& bounds)
    : family_(Builder<Metric>().Name(name).Help(help).Register(exposition.registry())),
      labels_(labels),
      bounds_(bounds) {
  if constexpr (kLabels == 0) Series({});
}

// A family never holds more than kMaxSeries series: past that, new label values count under
// "other", so a mistake in a label costs precision and not the daemon's memory.
template <typename Metric, int kLabels>
Metric& Kept<Metric, kLabels>::Series(const std::array<std::string_view, kLabels>& values) {
  prometheus::Labels labels;
  for (int i = 0; i < kLabels; ++i) labels.emplace(labels_[i], values[i]);
  if (!family_.Has(labels)) {
    // Two threads that add the same labels count twice: the bound is then one tighter.
    if (series_.load(std::memory_order_relaxed) >= kMaxSeries) {
      for (auto& [name, value] : labels) value = "other";
    } else {
      series_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  if constexpr (std::is_same_v<Metric, prometheus::Histogram>) {
    return family_.Add(labels, bounds_);
  } else {
    return family_.Add(labels);
  }
}

template class Kept<prometheus::Counter, 0>;
template class Kept<prometheus::Counter, 1>;
template class Kept<prometheus::Counter, 2>;
template class Kept<prometheus::Counter, 3>;
template class Kept<prometheus::Counter, 5>;
template class Kept<prometheus::Gauge, 0>;
template class Kept<prometheus::Gauge, 1>;
template class Kept<prometheus::Gauge, 2>;
template class Kept<prometheus::Histogram, 1>;
template class Kept<prometheus::Histogram, 2>;

Metrics::Metrics(std::string_view version) : exposition_(std::make_shared<Exposition>()) {
  Gauges<1>(*exposition_, "gemmd_build_info", "1, with the version as a label.",
            {"version"})(version)
      .Set(1);
  // Series that exist from the start: a rate over them sees the first event too.
  for (const char* cause : {"closed", "expired", "cut", "drained", "evicted"}) SessionsEnded(cause);
  for (const char* result : {"ok", "invalid", "refused"}) ConfigReloads(result);
  for (const char* dir : {"in", "out"}) TransferSeconds(dir);
  KernelFallback("no_better_kernel");
  for (std::string_view reason :
       {reason::kSessionLimit, reason::kBufferLimit, reason::kBufferBytesLimit, reason::kPlanLimit,
        reason::kArmedLimit, reason::kHostBytesLimit, reason::kStreamLimit, reason::kQueueLimit,
        reason::kOpsLimit, reason::kProgramLimit, reason::kInlineLimit, reason::kWindow,
        reason::kDeviceMemory, reason::kDeadline, reason::kDraining, reason::kDeviceFenced,
        reason::kQueuedTimeLimit}) {
    Rejected(reason);
  }
  for (std::string_view reason :
       {reason::kNoCredentials, reason::kBadToken, reason::kExpiredToken,
        reason::kUnknownCertificate, reason::kUnknownPeer, reason::kRole}) {
    AuthRefusals(reason);
  }
  for (const char* result : {"ok", "invalid"}) TokenFileLoads(result);
}

Metrics::~Metrics() = default;

const std::vector<double>& Metrics::TransferBuckets() {  // 100 us to 13 s
  static const std::vector<double>& buckets = *new std::vector<double>([] {
    std::vector<double> bounds;
    for (double bound = 1e-4; bounds.size() < 18; bound *= 2) bounds.push_back(bound);
    return bounds;
  }());
  return buckets;
}

std::unique_ptr<SourceRegistration> Metrics::Register(Source source) {
  return std::make_unique<SourceRegistration>(exposition_, std::move(source));
}

std::shared_ptr<const Exposition> Metrics::exposition() const { return exposition_; }

std::string Metrics::Text() const { return exposition_->Text(); }

}  // namespace gemmd::server
