#include "server/engine/observe/exposition.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "prometheus/text_serializer.h"

namespace gemmd::server {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

void Exposition::Add(const prometheus::Collectable* source) {
  absl::MutexLock lock(&mutex_);
  sources_.push_back(source);
}

void Exposition::Remove(const prometheus::Collectable* source) {
  absl::MutexLock lock(&mutex_);
  sources_.erase(std::remove(sources_.begin(), sources_.end(), source), sources_.end());
}

std::string Exposition::Text() const {
  std::vector<MetricFamily> families = registry_.Collect();
  {
    absl::ReaderMutexLock lock(&mutex_);
    for (const prometheus::Collectable* source : sources_) {
      std::vector<MetricFamily> read = source->Collect();
      std::move(read.begin(), read.end(), std::back_inserter(families));
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

SourceRegistration::SourceRegistration(std::shared_ptr<Exposition> exposition,
                                       std::unique_ptr<const prometheus::Collectable> source)
    : exposition_(std::move(exposition)), source_(std::move(source)) {
  exposition_->Add(source_.get());
}

SourceRegistration::~SourceRegistration() { exposition_->Remove(source_.get()); }

FamilyBuilder::FamilyBuilder(std::string name, std::string help, MetricType type) {
  family_.name = std::move(name);
  family_.help = std::move(help);
  family_.type = type;
}

void FamilyBuilder::Add(std::vector<ClientMetric::Label> labels, double value) {
  ClientMetric& metric = family_.metric.emplace_back();
  metric.label = std::move(labels);
  if (family_.type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

void FamilyBuilder::AppendTo(std::vector<MetricFamily>& families) && {
  if (!family_.metric.empty()) families.push_back(std::move(family_));
}

FamilyBuilder& Families::Gauge(std::string name, std::string help) {
  return families_.emplace_back(std::move(name), std::move(help), MetricType::Gauge);
}

FamilyBuilder& Families::Counter(std::string name, std::string help) {
  return families_.emplace_back(std::move(name), std::move(help), MetricType::Counter);
}

std::vector<MetricFamily> Families::Take() && {
  std::vector<MetricFamily> taken;
  for (FamilyBuilder& family : families_) std::move(family).AppendTo(taken);
  return taken;
}

std::vector<MetricFamily> ReadSource::Collect() const {
  Families families;
  read_(families);
  return std::move(families).Take();
}

}  // namespace gemmd::server
