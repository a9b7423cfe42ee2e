#include "kernels/cuda/run/graph.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::cuda {
namespace {

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

// Ends what was begun on `side`, whatever came of it: else the stream would take nothing any more.
absl::Status Graph::Record(cudaStream_t side, Queue queue, Template& recorded) {
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

absl::StatusOr<Graph::Copies> Graph::FindCopies(cudaGraph_t graph, size_t nodes) {
  std::vector<cudaGraphNode_t> all(nodes);
  absl::Status status = ToStatus(cudaGraphGetNodes(graph, all.data(), &nodes), "reading nodes");
  Copies copies;
  for (size_t i = 0; i < nodes && status.ok(); ++i) {
    cudaGraphNodeType type;
    status = ToStatus(cudaGraphNodeGetType(all[i], &type), "reading a node");
    if (!status.ok() || type != cudaGraphNodeTypeMemcpy) continue;
    cudaMemcpy3DParms copy;
    status = ToStatus(cudaGraphMemcpyNodeGetParams(all[i], &copy), "reading a copy");
    if (copy.kind != cudaMemcpyDeviceToHost) continue;
    auto* target = static_cast<std::byte*>(copy.dstPtr.ptr);
    copies[target] = {all[i], copy.srcPtr.ptr, target, copy.extent.width};
  }
  return status.ok() ? absl::StatusOr<Copies>(std::move(copies)) : status;
}

cudaError_t Graph::Redirect(const std::byte* recorded, std::byte* target) {
  Copy& copy = copies_.at(recorded);
  if (copy.target == target) return cudaSuccess;
  copy.target = target;
  return cudaGraphExecMemcpyNodeSetParams1D(exec_, copy.node, target, copy.source, copy.bytes,
                                            cudaMemcpyDeviceToHost);
}

absl::StatusOr<std::unique_ptr<Graph>> Graph::Capture(cudaStream_t side, Queue queue) {
  Template recorded;
  absl::Status status = Record(side, queue, recorded);
  if (!status.ok()) return status;
  size_t nodes = 0;
  status = ToStatus(cudaGraphGetNodes(recorded.get(), nullptr, &nodes), "counting nodes");
  if (!status.ok()) return status;
  const absl::StatusOr<int> overlaps = CountOverlaps(recorded.get());
  if (!overlaps.ok()) return overlaps.status();
  absl::StatusOr<Copies> copies = FindCopies(recorded.get(), nodes);
  if (!copies.ok()) return copies.status();
  cudaGraphExec_t exec = nullptr;
  status = ToStatus(cudaGraphInstantiate(&exec, recorded.get(), 0),
                    absl::StrCat("making a graph of ", nodes, " nodes"));
  if (!status.ok()) return status;
  Template kept = copies->empty() ? Template() : std::move(recorded);
  return std::unique_ptr<Graph>(
      new Graph(exec, std::move(kept), *std::move(copies), static_cast<int>(nodes), *overlaps));
}

absl::Status Graph::Upload(cudaStream_t stream) const {
  return ToStatus(cudaGraphUpload(exec_, stream), "uploading a graph");
}

// On a device with a fatal error it fails, and the graph is lost until the process ends.
Graph::~Graph() {
  if (cudaGraphExecDestroy(exec_) != cudaSuccess) cudaGetLastError();
}

}  // namespace gemmd::kernels::cuda
