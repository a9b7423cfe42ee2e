// CounterSource: a counter that its owner keeps anyway, read at scrapes.

#ifndef GEMMD_SERVER_ENGINE_OBSERVE_COUNTER_SOURCE_H_
#define GEMMD_SERVER_ENGINE_OBSERVE_COUNTER_SOURCE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/engine/observe/exposition.h"

namespace gemmd::server {

class CounterSource : public prometheus::Collectable {
 public:
  // `read` is called by any thread, as long as the source is registered.
  CounterSource(std::string name, std::string help, std::function<int64_t()> read)
      : name_(std::move(name)), help_(std::move(help)), read_(std::move(read)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    FamilyBuilder family(name_, help_, prometheus::MetricType::Counter);
    family.Add({}, static_cast<double>(read_()));
    std::vector<prometheus::MetricFamily> families;
    std::move(family).AppendTo(families);
    return families;
  }

 private:
  const std::string name_;
  const std::string help_;
  const std::function<int64_t()> read_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_OBSERVE_COUNTER_SOURCE_H_
