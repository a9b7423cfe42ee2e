// Exposition: what a scrape gets: the metrics that are kept, and those that are read only when
// somebody asks, of which each owner registers a source.

#ifndef GEMMD_SERVER_ENGINE_OBSERVE_EXPOSITION_H_
#define GEMMD_SERVER_ENGINE_OBSERVE_EXPOSITION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
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

// The families of one source at one scrape. References stay good until Take.
class Families {
 public:
  FamilyBuilder& Gauge(std::string name, std::string help);
  FamilyBuilder& Counter(std::string name, std::string help);
  std::vector<prometheus::MetricFamily> Take() &&;

 private:
  std::deque<FamilyBuilder> families_;
};

// A source that `read` makes: any thread calls it, as long as the source is registered.
class ReadSource : public prometheus::Collectable {
 public:
  explicit ReadSource(std::function<void(Families&)> read) : read_(std::move(read)) {}
  std::vector<prometheus::MetricFamily> Collect() const final;

 private:
  const std::function<void(Families&)> read_;
};

// A counter that its owner keeps anyway.
class CounterSource : public ReadSource {
 public:
  CounterSource(const std::string& name, const std::string& help, std::function<int64_t()> read)
      : ReadSource([=](Families& families) {
          families.Counter(name, help).Add({}, static_cast<double>(read()));
        }) {}
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_OBSERVE_EXPOSITION_H_
