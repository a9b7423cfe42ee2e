#include "tests/client/armed/fake_cuda.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kGpus = 2;
constexpr int kInvalidValue = 1;
constexpr int kInvalidContext = 201;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureRelaxed = 2;

using Step = std::function<void()>;

uint32_t* Word(uint64_t address) { return reinterpret_cast<uint32_t*>(address); }

struct BatchStep {
  uint32_t operation;
  uint64_t address;
  uint64_t value;
  uint32_t flags;
  uint64_t alias;
  uint64_t unused;
};

struct LaunchAttribute {
  int id;
  int unused;
  int value;
  std::array<int, 15> rest;
};
struct LaunchConfig {
  std::array<unsigned, 3> grid, block;
  unsigned shared_bytes;
  CUstream_st* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

}  // namespace

struct CUctx_st {
  int gpu = 0;
};
struct CUfunc_st;

struct CUstream_st {
  explicit CUstream_st(CUctx_st* home) : context(home), thread([this] { Run(); }) {}

  void Add(Step step) {
    const std::lock_guard lock(mu);
    if (capturing) {
      captured.push_back(std::move(step));
      return;
    }
    steps.push_back(std::move(step));
    changed.notify_all();
  }

  void Run() {
    std::unique_lock lock(mu);
    for (;;) {
      changed.wait(lock, [this] { return !steps.empty(); });
      const Step step = std::move(steps.front());
      steps.pop_front();
      busy = true;
      lock.unlock();
      step();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }

  CUctx_st* const context;
  std::mutex mu;
  std::condition_variable changed;
  std::deque<Step> steps;
  std::vector<Step> captured;
  std::vector<Step> at_end;  // of the graph
  bool capturing = false;
  bool busy = false;
  std::thread thread;  // never ends, as a GPU does not
};

namespace {

std::array<CUctx_st, kGpus> contexts = {CUctx_st{0}, CUctx_st{1}};
thread_local std::vector<CUctx_st*> current;
thread_local int capture_mode = 0;
std::atomic<int> captures = 0;
std::atomic<int> registrations = 0;
std::atomic<int> kernels = 0;
std::atomic<int> copies = 0;

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuGetErrorName(int code, const char** name) {
  *name = code == kInvalidContext ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = kGpus;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, 0xa0 + device, 16);
  return 0;
}
int cuDevicePrimaryCtxRetain(CUctx_st** context, int device) {
  *context = &contexts[static_cast<size_t>(device)];
  return 0;
}
int cuCtxPushCurrent_v2(CUctx_st* context) {
  current.push_back(context);
  return 0;
}
int cuCtxPopCurrent_v2(CUctx_st** context) {
  if (current.empty()) return kInvalidContext;
  *context = current.back();
  current.pop_back();
  return 0;
}
int cuCtxGetCurrent(CUctx_st** context) {
  *context = current.empty() ? nullptr : current.back();
  return 0;
}
int cuCtxGetDevice(int* device) {
  if (current.empty()) return kInvalidContext;
  *device = current.back()->gpu;
  return 0;
}
int cuStreamGetCtx(CUstream_st* stream, CUctx_st** context) {
  *context = stream->context;
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return 0;
}
int cuMemHostRegister_v2(void* data, size_t size, unsigned) {
  if (captures > 0 && capture_mode != kCaptureRelaxed) return kCaptureUnsupported;
  if (reinterpret_cast<uintptr_t>(data) % 4096 != 0 || size % 4096 != 0) return kInvalidValue;
  ++registrations;
  return 0;
}
int cuMemHostUnregister(void*) {
  if (captures > 0 && capture_mode != kCaptureRelaxed) return kCaptureUnsupported;
  --registrations;
  return 0;
}
int cuMemHostGetDevicePointer_v2(uint64_t* address, void* data, unsigned) {
  *address = reinterpret_cast<uint64_t>(data);
  return 0;
}
int cuStreamBatchMemOp_v2(CUstream_st* stream, unsigned count, void* batch, unsigned) {
  const auto* steps = static_cast<const BatchStep*>(batch);
  for (unsigned i = 0; i < count; ++i) {
    const BatchStep step = steps[i];
    const auto value = static_cast<uint32_t>(step.value);
    if (step.operation == 2) {
      stream->Add([step, value] { __atomic_store_n(Word(step.address), value, __ATOMIC_SEQ_CST); });
    } else if (step.operation == 1 && step.flags == 0) {
      stream->Add([step, value] {
        while (static_cast<int32_t>(__atomic_load_n(Word(step.address), __ATOMIC_SEQ_CST) - value) <
               0) {
          std::this_thread::yield();
        }
      });
    } else {
      return kInvalidValue;
    }
  }
  return 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, CUstream_st* stream) {
  ++copies;
  stream->Add(
      [=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size); });
  return 0;
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, CUstream_st* stream) {
  stream->Add([=] { std::memset(reinterpret_cast<void*>(to), value, size); });
  return 0;
}
// A stream is the graph that it captures.
int cuStreamGetCaptureInfo_v2(CUstream_st* stream, int* status, uint64_t*, void** graph,
                              const void***, size_t*) {
  const std::lock_guard lock(stream->mu);
  *status = stream->capturing ? 1 : 0;
  *graph = stream;
  return 0;
}
int cuUserObjectCreate(void** object, void* data, void (*destroy)(void*), unsigned, unsigned) {
  *object = new Step([=] { destroy(data); });
  return 0;
}
int cuGraphRetainUserObject(CUstream_st* graph, void* object, unsigned, unsigned) {
  const std::unique_ptr<Step> at_end(static_cast<Step*>(object));
  const std::lock_guard lock(graph->mu);
  graph->at_end.push_back(*at_end);
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  *module = const_cast<void*>(image);
  return 0;
}
int cuModuleGetFunction(CUfunc_st** function, void* module, const char* name) {
  const std::string entry = std::string(".entry ") + name + "(";
  const char* const found = std::strstr(static_cast<const char*>(module), entry.c_str());
  if (found == nullptr) return kInvalidValue;
  *function = reinterpret_cast<CUfunc_st*>(const_cast<char*>(found));
  return 0;
}
int cuStreamIsCapturing(CUstream_st* stream, int* capturing) {
  const std::lock_guard lock(stream->mu);
  *capturing = stream->capturing ? 1 : 0;
  return 0;
}
// Both kernels there are: set a word back, one of them copies by a cluster of 8, then set another.
int cuLaunchKernel(CUfunc_st* kernel, unsigned grid, unsigned, unsigned, unsigned block, unsigned,
                   unsigned, unsigned, CUstream_st* stream, void** arguments, void**) {
  std::array<uint64_t, 5> words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = *static_cast<uint64_t*>(arguments[i]);
  const auto [to, from, chunks, gate, done] = words;
  if ((to | from) % 16 != 0) return kInvalidValue;
  const bool copies = std::strstr(reinterpret_cast<const char*>(kernel), "copy_and_ring(") ==
                      reinterpret_cast<const char*>(kernel) + std::strlen(".entry gemmd_");
  if (copies ? grid != 8 : grid * block != 1 || chunks > 0) return kInvalidValue;
  ++kernels;
  stream->Add([to = to, from = from, bytes = chunks * 16, gate = gate, done = done] {
    __atomic_store_n(Word(done), 0, __ATOMIC_SEQ_CST);
    if (bytes > 0) {
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    }
    __atomic_store_n(Word(gate), 1, __ATOMIC_SEQ_CST);
  });
  return 0;
}
int cuLaunchKernelEx(const void* launch, CUfunc_st* kernel, void** arguments, void** extra) {
  const auto* const config = static_cast<const LaunchConfig*>(launch);
  constexpr int kProgrammatic = 6;
  if (config->attribute_count != 1 || config->attributes->id != kProgrammatic ||
      config->attributes->value != 1 || config->stream->capturing) {
    return kInvalidValue;
  }
  const auto& grid = config->grid;
  const auto& block = config->block;
  return cuLaunchKernel(kernel, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                        config->shared_bytes, config->stream, arguments, extra);
}

CUstream_st* FakeCudaStream(int gpu) {
  return new CUstream_st(&contexts[static_cast<size_t>(gpu)]);
}
bool FakeCudaSettled(CUstream_st* stream, int most_ms) {
  std::unique_lock lock(stream->mu);
  return stream->changed.wait_for(lock, std::chrono::milliseconds(most_ms),
                                  [&] { return stream->steps.empty() && !stream->busy; });
}
void FakeCudaCall(CUstream_st* stream, void (*function)(void*), void* argument) {
  stream->Add([=] { function(argument); });
}
void FakeCudaCapture(CUstream_st* stream, bool on) {
  const std::lock_guard lock(stream->mu);
  captures += static_cast<int>(on) - static_cast<int>(stream->capturing);
  stream->capturing = on;
  if (!on) return;
  stream->captured.clear();
  for (const Step& step : stream->at_end) step();
  stream->at_end.clear();
}
void FakeCudaReplay(CUstream_st* stream) {
  for (const Step& step : stream->captured) stream->Add(step);
}
int FakeCudaRegistrations() { return registrations; }
int FakeCudaKernels() { return kernels; }
int FakeCudaCopies() { return copies; }

}  // extern "C"
