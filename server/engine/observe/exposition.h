// Exposition: what a scrape gets: the metrics that are kept, and those that are read only when
// somebody asks, of which each owner registers a source.

#ifndef GEMMD_SERVER_ENGINE_OBSERVE_EXPOSITION_H_
#define GEMMD_SERVER_ENGINE_OBSERVE_EXPOSITION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

namespace gemmd::server {

// Thread-safe.
class Exposition {
 public:
  prometheus::Registry& registry() { return registry_; }
  // `source` is asked at every scrape until it is removed, which waits for a scrape under way.
  void Add(const prometheus::Collectable* source) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(const prometheus::Collectable* source) ABSL_LOCKS_EXCLUDED(mutex_);
  // Prometheus' text format, 0.0.4.
  std::string Text() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  prometheus::Registry registry_;
  mutable absl::Mutex mutex_;
  std::vector<const prometheus::Collectable*> sources_ ABSL_GUARDED_BY(mutex_);
};

// A source for as long as this lives. The last member of what it reads, so that it goes first.
class SourceRegistration {
 public:
  SourceRegistration(std::shared_ptr<Exposition> exposition,
                     std::unique_ptr<const prometheus::Collectable> source);
  ~SourceRegistration();
  SourceRegistration(const SourceRegistration&) = delete;
  SourceRegistration& operator=(const SourceRegistration&) = delete;

 private:
  const std::shared_ptr<Exposition> exposition_;
  const std::unique_ptr<const prometheus::Collectable> source_;
};

// A family of one type in the making, for sources.
class FamilyBuilder {
 public:
  FamilyBuilder(std::string name, std::string help, prometheus::MetricType type);
  void Add(std::vector<prometheus::ClientMetric::Label> labels, double value);
  // Moves the family to `families` unless it has no series.
  void AppendTo(std::vector<prometheus::MetricFamily>& families) &&;

 private:
  prometheus::MetricFamily family_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_OBSERVE_EXPOSITION_H_
