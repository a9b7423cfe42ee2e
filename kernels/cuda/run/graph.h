// Graph: what a program queues, recorded once and replayed by one call. Hundreds of launches of
// 2 to 4 us of host time each become one.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
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

  // Whether a copy to host memory at `recorded`, the whole of it, is one that can be redirected.
  bool CopiesTo(const std::byte* recorded) const { return copies_.contains(recorded); }
  // Has it go to `target` from the next launch on, until it is redirected again. Under half a
  // microsecond, and nothing when it goes there already.
  cudaError_t Redirect(const std::byte* recorded, std::byte* target);

  int nodes() const { return nodes_; }
  // Kernels that may start under the end of the one before them: the launches that were
  // programmatic keep being so.
  int overlaps() const { return overlaps_; }

 private:
  // A recording before it can run, and what its nodes are known by afterwards. Frees it.
  class Template {
   public:
    Template() = default;
    Template(Template&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
    ~Template() {
      if (graph_ != nullptr) cudaGraphDestroy(graph_);
    }
    cudaGraph_t* out() { return &graph_; }
    cudaGraph_t get() const { return graph_; }

   private:
    cudaGraph_t graph_ = nullptr;
  };
  struct Copy {
    cudaGraphNode_t node;
    const void* source;
    std::byte* target;
    size_t bytes;
  };
  using Copies = absl::flat_hash_map<const std::byte*, Copy>;  // by the recorded target

  Graph(cudaGraphExec_t exec, Template recorded, Copies copies, int nodes, int overlaps)
      : exec_(exec),
        recorded_(std::move(recorded)),
        copies_(std::move(copies)),
        nodes_(nodes),
        overlaps_(overlaps) {}
  static absl::Status Record(cudaStream_t side, Queue queue, Template& recorded);
  static absl::StatusOr<Copies> FindCopies(cudaGraph_t graph, size_t nodes);

  const cudaGraphExec_t exec_;
  const Template recorded_;  // only while copies_ need its nodes
  Copies copies_;
  const int nodes_;
  const int overlaps_;
};

}  // namespace gemmd::kernels::cuda
