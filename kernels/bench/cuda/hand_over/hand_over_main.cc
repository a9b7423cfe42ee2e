// hand_over_bench: what it costs one stream to wait for a word that another one sets, by how it is
// set, and a whole round of ring, launch by the host and wait as an armed run has it. Streams of
// one process; under MPS those of two are alike.
//
//   hand_over_bench

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/bench/cuda/hand_over/hand_over_kernels.h"

namespace gemmd::kernels::bench {
namespace {

constexpr int kTimes = 200;  // of each way
constexpr int kRow = 16;     // rounds in a row
constexpr int kHeldUs = 60;  // longer than the host takes to queue what is timed

void Check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "hand_over_bench: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

// Asked for at run time, as kernels/cuda/run/stream_signal.cc does.
using WordCall = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
WordCall Find(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  Check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found), name);
  if (found == cudaDriverEntryPointSuccess) return reinterpret_cast<WordCall>(function);
  std::fprintf(stderr, "hand_over_bench: the driver has no %s\n", name);
  std::exit(1);
}

class Bench {
 public:
  Bench() {
    for (cudaStream_t* stream : {&caller_, &other_}) {
      Check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "making a stream");
    }
    Check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
    const auto on_device = [](void** to, size_t bytes) {
      Check(cudaMalloc(to, bytes), "allocating");
    };
    on_device(reinterpret_cast<void**>(&times_), sizeof(uint64_t) * (2 * kRow + 1));
    on_device(reinterpret_cast<void**>(&on_device_), kWordsBytes);
    Check(cudaMallocHost(reinterpret_cast<void**>(&on_host_), kWordsBytes), "allocating");
  }

  enum class Way { kStore, kWrite, kEvent, kLook };

  // From the kernel in front of the setting to the first one behind the wait.
  double HandOverUs(Way way, bool host_word) {
    uint32_t* const word = host_word ? on_host_ : on_device_;
    std::vector<double> took;
    for (int i = 0; i < kTimes; ++i) {
      Clear();
      if (way == Way::kEvent) Set(way, word);
      if (way == Way::kLook) Check(LaunchLook(word, caller_), "looking");
      if (way == Way::kEvent) {
        Check(cudaStreamWaitEvent(caller_, event_), "waiting");
      } else {
        wait_(caller_, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_GEQ);
      }
      Check(LaunchStamp(times_ + 1, caller_), "stamping");
      if (way != Way::kEvent) Set(way, word);
      took.push_back(Spans(1)[0]);
    }
    return Quantile(took, 0.5);
  }

  // A row of rounds, which the host answers by launching a graph that sets the word by a store.
  std::vector<double> RoundsUs(bool host_word, bool wakes) {
    uint32_t* const word = (host_word ? on_host_ : on_device_) + kDone;
    std::atomic_ref gate(on_host_[kGate]);
    const cudaGraphExec_t answer = Graph(other_, [&] {
      Check(LaunchStamp(times_ + 2 * kRow, other_), "stamping");
      Check(LaunchStampAndSet(times_ + 2 * kRow, word, other_), "setting the word");
    });
    const cudaGraphExec_t calls = Graph(caller_, [&] {
      Check(LaunchBusy(kHeldUs, caller_), "holding");
      for (int i = 0; i < kRow; ++i) {
        Check(LaunchStamp(times_ + 2 * i, caller_), "stamping");
        Check(LaunchRing(word, on_host_ + kGate, caller_), "ringing");
        wait_(caller_, reinterpret_cast<CUdeviceptr>(word), 1, CU_STREAM_WAIT_VALUE_GEQ);
        Check(LaunchStamp(times_ + 2 * i + 1, caller_), "stamping");
      }
    });
    std::vector<double> took;
    for (int row = 0; row < kTimes / 4; ++row) {
      Clear();
      Check(cudaGraphLaunch(calls, caller_), "calling");
      for (int i = 0; i < kRow; ++i) {
        while (gate.exchange(0, std::memory_order_acq_rel) == 0) {
        }
        Check(cudaGraphLaunch(answer, other_), "answering");
        if (wakes) write_(other_, reinterpret_cast<CUdeviceptr>(on_host_ + kSpare), 1, 0);
      }
      const std::vector<double> spans = Spans(kRow);
      took.insert(took.end(), spans.begin(), spans.end());
    }
    Check(cudaGraphExecDestroy(answer), "ending a graph");
    Check(cudaGraphExecDestroy(calls), "ending a graph");
    return took;
  }

  static double Quantile(std::vector<double> values, double share) {
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  }

 private:
  // Words in lines of their own.
  static constexpr int kDone = 32, kGate = 64, kSpare = 96;
  static constexpr size_t kWordsBytes = 128 * sizeof(uint32_t);

  static cudaGraphExec_t Graph(cudaStream_t stream, const std::function<void()>& queue) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "recording");
    queue();
    Check(cudaStreamEndCapture(stream, &graph), "recording");
    Check(cudaGraphInstantiate(&made, graph, 0), "making a graph");
    Check(cudaGraphDestroy(graph), "making a graph");
    return made;
  }

  void Clear() {
    Check(cudaDeviceSynchronize(), "waiting");
    Check(cudaMemset(on_device_, 0, kWordsBytes), "clearing");
    std::fill_n(on_host_, kWordsBytes / sizeof(uint32_t), 0u);
    Check(cudaDeviceSynchronize(), "clearing");
  }

  void Set(Way way, uint32_t* word) {
    Check(LaunchBusy(kHeldUs, other_), "holding");
    if (way == Way::kStore || way == Way::kLook) {
      return Check(LaunchStampAndSet(times_, word, other_), "setting the word");
    }
    Check(LaunchStamp(times_, other_), "stamping");
    if (way == Way::kEvent) return Check(cudaEventRecord(event_, other_), "recording");
    write_(other_, reinterpret_cast<CUdeviceptr>(word), 1, 0);
  }

  std::vector<double> Spans(int count) {
    Check(cudaDeviceSynchronize(), "waiting");
    std::vector<uint64_t> stamps(2 * count);
    Check(cudaMemcpy(stamps.data(), times_, stamps.size() * sizeof(uint64_t), cudaMemcpyDefault),
          "reading times");
    std::vector<double> spans;
    for (int i = 0; i < count; ++i) {
      const auto ns = static_cast<int64_t>(stamps[2 * i + 1] - stamps[2 * i]);
      spans.push_back(static_cast<double>(ns) * 1e-3);
    }
    return spans;
  }

  const WordCall wait_ = Find("cuStreamWaitValue32");
  const WordCall write_ = Find("cuStreamWriteValue32");
  cudaStream_t caller_ = nullptr, other_ = nullptr;
  cudaEvent_t event_ = nullptr;
  uint64_t* times_ = nullptr;  // pairs; behind them one that nobody reads
  uint32_t *on_device_ = nullptr, *on_host_ = nullptr;
};

void Main() {
  Bench bench;
  std::printf("%-44s %10s %10s\n", "us, from kernel to kernel", "host word", "device word");
  for (const auto& [name, way] :
       {std::pair{"a kernel's store", Bench::Way::kStore},
        std::pair{"a write of the stream", Bench::Way::kWrite},
        std::pair{"an event that is waited for", Bench::Way::kEvent},
        std::pair{"a store, looked for by a kernel first", Bench::Way::kLook}}) {
    std::printf("%-44s %10.2f %10.2f\n", name, bench.HandOverUs(way, true),
                bench.HandOverUs(way, false));
  }
  for (const bool wakes : {false, true}) {
    const std::vector<double> host = bench.RoundsUs(true, wakes);
    const std::vector<double> device = bench.RoundsUs(false, wakes);
    for (const double share : {0.5, 0.99}) {
      const std::string name = std::string("a round, the word by a store") +
                               (wakes ? " and a write" : "") + (share < 0.9 ? ", p50" : ", p99");
      std::printf("%-44s %10.2f %10.2f\n", name.c_str(), Bench::Quantile(host, share),
                  Bench::Quantile(device, share));
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::bench

int main() {
  // Code that is loaded when it is first launched would wait for streams that wait.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  gemmd::kernels::bench::Main();
}
