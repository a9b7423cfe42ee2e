// The timer for machines without CUPTI.

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/bench/cuda/mark.h"
#include "kernels/bench/cuda/timer.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::ToStatus;

// A call between two events, captured once. Destroys its graph and events.
class TimedGraph {
 public:
  TimedGraph() = default;
  TimedGraph(TimedGraph&& other) noexcept
      : exec_(std::exchange(other.exec_, nullptr)),
        begin_(std::exchange(other.begin_, nullptr)),
        end_(std::exchange(other.end_, nullptr)) {}
  TimedGraph& operator=(TimedGraph&&) = delete;
  ~TimedGraph() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }

  absl::Status Capture(const Call& call, cudaStream_t stream) {
    for (cudaError_t code : {cudaEventCreate(&begin_), cudaEventCreate(&end_),
                             cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)}) {
      if (code != cudaSuccess) return ToStatus(code, "starting a capture");
    }
    const cudaError_t begin = cudaEventRecordWithFlags(begin_, stream, cudaEventRecordExternal);
    const absl::Status called = call(stream);
    const cudaError_t end = cudaEventRecordWithFlags(end_, stream, cudaEventRecordExternal);
    cudaGraph_t graph = nullptr;
    const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
    if (!called.ok()) {
      if (graph != nullptr) cudaGraphDestroy(graph);
      return called;
    }
    for (cudaError_t code : {begin, end, captured}) {
      if (code != cudaSuccess) return ToStatus(code, "capturing a call");
    }
    const cudaError_t code = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    return ToStatus(code, "instantiating a captured call");
  }

  absl::StatusOr<double> Run(const Flush& flush, cudaStream_t stream) const {
    if (absl::Status status = flush.QueueMark(stream); !status.ok()) return status;
    if (absl::Status status = flush.QueueL2(stream); !status.ok()) return status;
    if (cudaError_t code = cudaGraphLaunch(exec_, stream); code != cudaSuccess) {
      return ToStatus(code, "launching a captured call");
    }
    if (absl::Status status = WaitIdle(stream); !status.ok()) return status;
    float ms = 0;
    if (cudaError_t code = cudaEventElapsedTime(&ms, begin_, end_); code != cudaSuccess) {
      return ToStatus(code, "reading a call's events");
    }
    return ms * 1e-3;
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

class EventTimer : public Timer {
 public:
  EventTimer(const Flush& flush, cudaStream_t stream) : flush_(flush), stream_(stream) {}

  std::string method() const override { return "events"; }

  absl::StatusOr<std::vector<std::vector<double>>> Time(absl::Span<const Call> calls,
                                                        int repeats) override {
    std::vector<TimedGraph> graphs(calls.size() + 1);  // the last one is an empty kernel
    for (size_t i = 0; i <= calls.size(); ++i) {
      const Call empty = [](cudaStream_t s) { return ToStatus(LaunchMark(s), "an empty kernel"); };
      const absl::Status status = graphs[i].Capture(i < calls.size() ? calls[i] : empty, stream_);
      if (!status.ok()) return status;
    }
    std::vector<std::vector<double>> seconds(graphs.size());
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (size_t i = 0; i < graphs.size(); ++i) {
        absl::StatusOr<double> elapsed = graphs[i].Run(flush_, stream_);
        if (!elapsed.ok()) return elapsed.status();
        seconds[i].push_back(*elapsed);
      }
    }
    const double empty = Median(seconds.back());
    seconds.pop_back();
    for (std::vector<double>& call : seconds) {
      for (double& s : call) s -= empty;
    }
    return seconds;
  }

 private:
  const Flush& flush_;
  cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<Timer> MakeEventTimer(const Flush& flush, cudaStream_t stream) {
  return std::make_unique<EventTimer>(flush, stream);
}

}  // namespace gemmd::kernels::bench
