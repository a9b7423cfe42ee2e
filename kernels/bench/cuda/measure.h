// ShapeRunner: everything that is asked of one shape. Makes operands, checks every kernel that will
// be timed, then times ours, the floor and the peers by turns.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/bench/cuda/check.h"
#include "kernels/bench/cuda/entries.h"
#include "kernels/bench/cuda/machine.h"
#include "kernels/bench/cuda/workload.h"
#include "kernels/bench/options.h"
#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

class ShapeRunner {
 public:
  // All outlive the runner.
  ShapeRunner(Machine& machine, const Options& options, const Choosers& choosers)
      : machine_(machine),
        options_(options),
        choosers_(choosers),
        workload_(options.dtype, options.block_scales),
        checker_(machine.stream) {}

  // Never fails as a whole: what goes wrong is the outcome. `device_lost()` tells whether anything
  // more can run.
  ShapeResult Run(const Shape& shape);
  bool device_lost() const { return device_lost_; }

 private:
  // A timed kind beside ours, and where its time goes.
  struct Peer {
    Binding bind;
    double* us;
  };

  // A kind of cuBLASLt's, on which of the workload's operands.
  struct WantedPeer {
    cuda::CublasLtKind kind;
    cuda::MatmulArgs (Workload::*args)() const;
    double* us;
  };
  std::vector<WantedPeer> WantedPeers(ShapeResult& result) const;
  // The fastest of them: what takes part in --quick.
  WantedPeer QuickPeer(ShapeResult& result) const;

  absl::Status Measure(ShapeResult& result);
  absl::StatusOr<std::string> Fault(Entry& entry);
  absl::Status CheckEntries(ShapeResult& result, std::vector<Entry>& entries);
  absl::Status TimePool(std::vector<Entry>& entries, size_t first, int repeats);
  void ReportPool(ShapeResult& result, const std::vector<Entry>& entries) const;
  absl::Status KeepFastest(ShapeResult& result, std::vector<Entry>& entries);
  absl::Status MeasureQuick(ShapeResult& result, std::vector<Entry>& entries);
  absl::Status ListPeers(ShapeResult& result, std::vector<Peer>& peers);
  absl::StatusOr<Binding> BestFloor();
  using Times = std::vector<std::vector<double>>;  // [place][repeat], seconds
  absl::StatusOr<std::vector<Times>> TimeAtAllPlaces(const std::vector<Entry>& entries,
                                                     const std::vector<Peer>& peers);
  absl::Status TimeAll(ShapeResult& result, std::vector<Entry>& entries,
                       const std::vector<Peer>& peers);
  bool sweeping() const { return options_.sweep || options_.tune; }

  Machine& machine_;
  const Options& options_;
  const Choosers choosers_;
  Workload workload_;
  Checker checker_;
  bool device_lost_ = false;
};

}  // namespace gemmd::kernels::bench
