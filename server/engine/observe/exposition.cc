#include "server/engine/observe/exposition.h"

#include <algorithm>
#include <utility>

#include "prometheus/text_serializer.h"

namespace gemmd::server {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

void Exposition::Add(const Source* source) {
  absl::MutexLock lock(&mutex_);
  sources_.push_back(source);
}

void Exposition::Remove(const Source* source) {
  absl::MutexLock lock(&mutex_);
  sources_.erase(std::remove(sources_.begin(), sources_.end(), source), sources_.end());
}

std::string Exposition::Text() const {
  Families read;
  {
    absl::ReaderMutexLock lock(&mutex_);
    for (const Source* source : sources_) (*source)(read);
  }
  std::vector<MetricFamily> families = registry_.Collect();
  std::move(read).MoveTo(families);
  return prometheus::TextSerializer().Serialize(families);
}

SourceRegistration::SourceRegistration(std::shared_ptr<Exposition> exposition, Source source)
    : exposition_(std::move(exposition)), source_(std::move(source)) {
  exposition_->Add(&source_);
}

SourceRegistration::~SourceRegistration() { exposition_->Remove(&source_); }

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

FamilyBuilder& Families::Gauge(std::string name, std::string help) {
  return families_.emplace_back(std::move(name), std::move(help), MetricType::Gauge);
}

FamilyBuilder& Families::Counter(std::string name, std::string help) {
  return families_.emplace_back(std::move(name), std::move(help), MetricType::Counter);
}

void Families::AddCounter(std::string name, std::string help, int64_t value) {
  Counter(std::move(name), std::move(help)).Add({}, static_cast<double>(value));
}

void Families::MoveTo(std::vector<MetricFamily>& families) && {
  for (FamilyBuilder& made : families_) {
    if (!made.family_.metric.empty()) families.push_back(std::move(made.family_));
  }
}

}  // namespace gemmd::server
