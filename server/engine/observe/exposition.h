// Exposition: what a scrape gets: the metrics that are kept, and those that are read only when
// somebody asks, of which each owner registers a source.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

namespace gemmd::server {

// A family of one type in the making.
class FamilyBuilder {
 public:
  FamilyBuilder(std::string name, std::string help, prometheus::MetricType type);
  void Add(std::vector<prometheus::ClientMetric::Label> labels, double value);

 private:
  friend class Families;
  prometheus::MetricFamily family_;
};

// The families of one scrape that sources add. References stay good until MoveTo.
class Families {
 public:
  FamilyBuilder& Gauge(std::string name, std::string help);
  FamilyBuilder& Counter(std::string name, std::string help);
  // One series, of what its owner counts anyway.
  void AddCounter(std::string name, std::string help, int64_t value);
  // Those that have series go to the end of `families`.
  void MoveTo(std::vector<prometheus::MetricFamily>& families) &&;

 private:
  std::deque<FamilyBuilder> families_;
};

// Any thread calls it, as long as it is registered.
using Source = std::function<void(Families&)>;

// Thread-safe.
class Exposition {
 public:
  prometheus::Registry& registry() { return registry_; }
  // `source` is asked at every scrape until it is removed, which waits for a scrape under way.
  void Add(const Source* source) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(const Source* source) ABSL_LOCKS_EXCLUDED(mutex_);
  // Prometheus' text format, 0.0.4.
  std::string Text() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  prometheus::Registry registry_;
  mutable absl::Mutex mutex_;
  std::vector<const Source*> sources_ ABSL_GUARDED_BY(mutex_);
};

// A source for as long as this lives. The last member of what it reads, so that it goes first.
class SourceRegistration {
 public:
  SourceRegistration(std::shared_ptr<Exposition> exposition, Source source);
  ~SourceRegistration();
  SourceRegistration(const SourceRegistration&) = delete;
  SourceRegistration& operator=(const SourceRegistration&) = delete;

 private:
  const std::shared_ptr<Exposition> exposition_;
  const Source source_;
};

}  // namespace gemmd::server
