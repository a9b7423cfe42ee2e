#include "bench/serving/suite.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gemmd::bench {

absl::Status NoSecondDevice(const Serving& serving) {
  return absl::NotFoundError(absl::StrCat("the daemon has no second device like ", serving.device));
}

ResidentSpec Fp8Spec(const MatmulSize& size) {
  return {.m = size.m,
          .n = size.n,
          .k = size.k,
          .out_dtype = client::DType::kBF16,
          .quantize = cli::QuantizeModeOf("fp8-block")};
}

std::vector<Figure> MeasureServing(const Serving& serving,
                                   const std::function<void(const std::string&)>& announce) {
  struct Group {
    const char* name;
    std::vector<Figure> (*measure)(const Serving&);
  };
  std::vector<Figure> all;
  // Blocking calls first: once a process has used a Queue, gRPC's callback threads see its answers
  // before the caller does.
  for (const Group& group :
       {Group{"one matmul by Execute", MeasureUnary},
        Group{"a plan of a whole decode step", MeasurePlan},
        Group{"matmuls by Queue", MeasureQueue}, Group{"uploads", MeasureBulk},
        Group{"two devices", MeasureDevices}, Group{"a copy between them", MeasureDeviceCopy},
        Group{"two tenants", MeasureTenants}, Group{"workers sharing a weight", MeasureWorkers}}) {
    if (!absl::StrContains(group.name, serving.only)) continue;
    announce(group.name);
    std::vector<Figure> some = group.measure(serving);
    all.insert(all.end(), std::make_move_iterator(some.begin()),
               std::make_move_iterator(some.end()));
  }
  return all;
}

}  // namespace gemmd::bench
