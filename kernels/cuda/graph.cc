#include "kernels/cuda/graph.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"

namespace gemmd::kernels::cuda {
namespace {

// A recording before it can run. Frees it.
class Template {
 public:
  Template() = default;
  ~Template() {
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  cudaGraph_t* out() { return &graph_; }
  cudaGraph_t get() const { return graph_; }

 private:
  cudaGraph_t graph_ = nullptr;
};

// Ends what was begun on `side`, whatever came of it: else the stream would take nothing any more.
absl::Status Record(cudaStream_t side, Graph::Queue queue, Template& recorded) {
  // Relaxed: a kernel's code may be loaded at its first launch, which a stricter mode refuses, and
  // other threads go on allocating.
  absl::Status status =
      ToStatus(cudaStreamBeginCapture(side, cudaStreamCaptureModeRelaxed), "beginning a capture");
  if (!status.ok()) return status;
  status = queue(side);
  const absl::Status ended =
      ToStatus(cudaStreamEndCapture(side, recorded.out()), "ending a capture");
  if (!status.ok()) return status;
  if (!ended.ok()) return ended;
  return recorded.get() != nullptr ? absl::OkStatus()
                                   : absl::InternalError("a capture recorded nothing");
}

absl::StatusOr<int> CountOverlaps(cudaGraph_t graph) {
  size_t count = 0;
  absl::Status status =
      ToStatus(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), "counting edges");
  if (!status.ok() || count == 0) return status.ok() ? absl::StatusOr<int>(0) : status;
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> edges(count);
  status = ToStatus(cudaGraphGetEdges(graph, from.data(), to.data(), edges.data(), &count),
                    "reading edges");
  if (!status.ok()) return status;
  int overlaps = 0;
  for (size_t i = 0; i < count; ++i) {
    if (edges[i].type == cudaGraphDependencyTypeProgrammatic) ++overlaps;
  }
  return overlaps;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Graph>> Graph::Capture(cudaStream_t side, Queue queue) {
  Template recorded;
  absl::Status status = Record(side, queue, recorded);
  if (!status.ok()) return status;
  size_t nodes = 0;
  status = ToStatus(cudaGraphGetNodes(recorded.get(), nullptr, &nodes), "counting nodes");
  if (!status.ok()) return status;
  const absl::StatusOr<int> overlaps = CountOverlaps(recorded.get());
  if (!overlaps.ok()) return overlaps.status();
  cudaGraphExec_t exec = nullptr;
  status = ToStatus(cudaGraphInstantiate(&exec, recorded.get(), 0),
                    absl::StrCat("making a graph of ", nodes, " nodes"));
  if (!status.ok()) return status;
  return std::unique_ptr<Graph>(new Graph(exec, static_cast<int>(nodes), *overlaps));
}

absl::Status Graph::Upload(cudaStream_t stream) const {
  return ToStatus(cudaGraphUpload(exec_, stream), "uploading a graph");
}

// On a device with a fatal error it fails, and the graph is lost until the process ends.
Graph::~Graph() {
  if (cudaGraphExecDestroy(exec_) != cudaSuccess) cudaGetLastError();
}

}  // namespace gemmd::kernels::cuda
