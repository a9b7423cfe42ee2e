#include "bench/floor/suite.h"

namespace gemmd::bench {

absl::StatusOr<std::vector<Ratio>> MeasureFloor(
    const Floor& floor, const std::function<void(const std::string&)>& announce) {
  struct Group {
    const char* name;
    absl::StatusOr<std::vector<Ratio>> (*measure)(const Floor&);
  };
  std::vector<Ratio> all;
  for (const Group& group :
       {Group{"latency of Execute and rate of Queue", MeasureLatencies},
        Group{"uploads of 256 MiB", MeasureUploads}, Group{"matmuls of 2048^3", MeasureMatmuls},
        Group{"the Python client", MeasurePython}}) {
    announce(group.name);
    absl::StatusOr<std::vector<Ratio>> some = group.measure(floor);
    if (!some.ok()) return some.status();
    all.insert(all.end(), some->begin(), some->end());
  }
  return all;
}

}  // namespace gemmd::bench
