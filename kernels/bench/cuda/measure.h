// ShapeRunner: everything that is asked of one shape. Makes operands, checks every kernel that will
// be timed, then times ours, the floor and the peers by turns.

#ifndef GEMMD_KERNELS_BENCH_CUDA_MEASURE_H_
#define GEMMD_KERNELS_BENCH_CUDA_MEASURE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/bench/cuda/check.h"
#include "kernels/bench/cuda/machine.h"
#include "kernels/bench/cuda/workload.h"
#include "kernels/bench/options.h"
#include "kernels/bench/result.h"
#include "kernels/cuda/selector.h"

namespace gemmd::kernels::bench {

class ShapeRunner {
 public:
  // `chooser` is the selector under test, `model` one over the same pool without a table. All
  // outlive the runner.
  ShapeRunner(Machine& machine, const Options& options, const cuda::GemmSelector& chooser,
              const cuda::GemmSelector& model)
      : machine_(machine),
        options_(options),
        chooser_(chooser),
        model_(model),
        checker_(machine.stream) {}

  // Never fails as a whole: what goes wrong is the outcome. `device_lost()` tells whether anything
  // more can run.
  ShapeResult Run(const Shape& shape);
  bool device_lost() const { return device_lost_; }

 private:
  // One of our kernels on this shape. `calc_diff` and `rel_error` are of its check.
  struct Entry {
    std::string name;
    Call call;
    Errors errors;
    double quick_s = 0;
  };
  // A timed kind beside ours, and where its median goes.
  struct Peer {
    Call call;
    double* us;
  };

  absl::Status Measure(ShapeResult& result);
  absl::Status ListEntries(ShapeResult& result, std::vector<Entry>& entries);
  absl::StatusOr<Entry> MakeEntry(const cuda::GemmVariant& variant) const;
  absl::Status CheckEntries(ShapeResult& result, std::vector<Entry>& entries);
  absl::Status KeepFastest(ShapeResult& result, std::vector<Entry>& entries);
  absl::Status ListPeers(ShapeResult& result, std::vector<Peer>& peers);
  absl::StatusOr<Call> BestFloor();
  absl::Status TimeAll(ShapeResult& result, std::vector<Entry>& entries,
                       const std::vector<Peer>& peers);
  bool sweeping() const { return options_.sweep || options_.tune; }

  Machine& machine_;
  const Options& options_;
  const cuda::GemmSelector& chooser_;
  const cuda::GemmSelector& model_;
  Workload workload_;
  Checker checker_;
  std::vector<cuda::CublasLt::Plan> plans_;  // of the shape at hand
  bool device_lost_ = false;
};

}  // namespace gemmd::kernels::bench

#endif  // GEMMD_KERNELS_BENCH_CUDA_MEASURE_H_
