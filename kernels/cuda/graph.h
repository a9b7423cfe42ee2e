// Graph: what a program queues, recorded once and replayed by one call. Hundreds of launches of
// 2 to 4 us of host time each become one.

#ifndef GEMMD_KERNELS_CUDA_GRAPH_H_
#define GEMMD_KERNELS_CUDA_GRAPH_H_

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gemmd::kernels::cuda {

// Thread-compatible. Holds device memory until it is destroyed, which may happen while it runs: the
// driver waits with the rest.
class Graph {
 public:
  // What is to be recorded: queues work on the stream it is given, and waits for nothing.
  using Queue = absl::FunctionRef<absl::Status(cudaStream_t)>;

  // Records what `queue` queues on `side`, a stream with nothing on it that no other thread uses:
  // a call by another thread on a stream that is being recorded would spoil the recording. Runs
  // none of it. Fails with queue's status, or with the driver's reason; `side` is usable again.
  static absl::StatusOr<std::unique_ptr<Graph>> Capture(cudaStream_t side, Queue queue);

  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Brings it to the device, behind what is on `stream`: the first launch would do so, but would
  // fail where there is no memory left for it.
  absl::Status Upload(cudaStream_t stream) const;

  // Queues it on `stream` of the current device, behind its own earlier runs too.
  cudaError_t Launch(cudaStream_t stream) const { return cudaGraphLaunch(exec_, stream); }

  int nodes() const { return nodes_; }
  // Kernels that may start under the end of the one before them: the launches that were
  // programmatic keep being so.
  int overlaps() const { return overlaps_; }

 private:
  Graph(cudaGraphExec_t exec, int nodes, int overlaps)
      : exec_(exec), nodes_(nodes), overlaps_(overlaps) {}

  const cudaGraphExec_t exec_;
  const int nodes_;
  const int overlaps_;
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_GRAPH_H_
