#include "client/armed/cuda_driver.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "client/armed/copy_kernel.h"

namespace gemmd::armed {
namespace {

using Device = int;
using CudaModule = void*;

// CUstreamBatchMemOpParams: 48 bytes, of which a step uses 32.
struct BatchStep {
  uint32_t operation;
  uint64_t address;
  uint64_t value;  // of 32-bit steps the low half
  uint32_t flags;
  uint64_t alias = 0;
  uint64_t unused = 0;
};
static_assert(sizeof(BatchStep) == 48, "the driver's union is six 64-bit words");

// CUlaunchAttribute, of which ours are numbers, and CUlaunchConfig.
struct LaunchAttribute {
  int32_t id;
  int32_t value_begins_at_8 = 0;
  int32_t value;
  std::array<int32_t, 15> unused = {};
};
static_assert(sizeof(LaunchAttribute) == 72, "the driver's union has 64 bytes");

struct LaunchConfig {
  std::array<unsigned, 3> grid, block;
  unsigned shared_bytes;
  CudaStream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

constexpr int32_t kProgrammaticSerialization = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_..

constexpr uint32_t kWaitValue32 = 1;   // CU_STREAM_MEM_OP_WAIT_VALUE_32
constexpr uint32_t kWriteValue32 = 2;  // CU_STREAM_MEM_OP_WRITE_VALUE_32
constexpr uint32_t kWaitAtLeast = 0;   // CU_STREAM_WAIT_VALUE_GEQ
constexpr uint32_t kWriteDefault = 0;  // CU_STREAM_WRITE_VALUE_DEFAULT: with a barrier before
constexpr unsigned kRegisterFlags = 0x1 | 0x2;  // CU_MEMHOSTREGISTER_PORTABLE, _DEVICEMAP
constexpr int kInvalidContext = 201;            // CUDA_ERROR_INVALID_CONTEXT
constexpr int kCaptureRelaxed = 2;              // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr int kAlreadyRegistered = 712;         // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
constexpr size_t kMostSteps = 8;

std::string UuidText(const std::array<unsigned char, 16>& bytes) {
  std::string text = "GPU-";
  for (size_t i = 0; i < bytes.size(); ++i) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", bytes[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += two;
  }
  return text;
}

}  // namespace

struct CudaDriver::Calls {
  int (*init)(unsigned);
  int (*error_name)(int, const char**);
  int (*device_count)(int*);
  int (*device_uuid)(unsigned char*, Device);  // 16 bytes
  int (*retain_primary)(CudaContext*, Device);
  int (*push)(CudaContext);
  int (*pop)(CudaContext*);
  int (*current)(CudaContext*);
  int (*device_of_current)(Device*);
  int (*stream_context)(CudaStream, CudaContext*);
  int (*exchange_capture_mode)(int*);
  int (*host_register)(void*, size_t, unsigned);
  int (*host_unregister)(void*);
  int (*host_device_pointer)(uint64_t*, void*, unsigned);
  int (*batch)(CudaStream, unsigned, void*, unsigned);  // BatchSteps
  int (*copy)(uint64_t, uint64_t, size_t, CudaStream);
  int (*fill)(uint64_t, unsigned char, size_t, CudaStream);
  // For the copy kernel. Null in a library that has them not, which does without.
  int (*load_module)(CudaModule*, const void*);
  int (*function_of)(CudaFunction*, CudaModule, const char*);
  int (*launch)(CudaFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                CudaStream, void**, void**);
  int (*launch_ex)(const void*, CudaFunction, void**, void**);  // a LaunchConfig
  int (*is_capturing)(CudaStream, int*);

  // What libcuda lacks, or null.
  const char* Load(void* library) {
    const char* missing = nullptr;
    const auto find = [&](auto& call, const char* name) {
      call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
      if (call == nullptr) missing = name;
    };
    find(init, "cuInit");
    find(error_name, "cuGetErrorName");
    find(device_count, "cuDeviceGetCount");
    find(device_uuid, "cuDeviceGetUuid_v2");
    find(retain_primary, "cuDevicePrimaryCtxRetain");
    find(push, "cuCtxPushCurrent_v2");
    find(pop, "cuCtxPopCurrent_v2");
    find(current, "cuCtxGetCurrent");
    find(device_of_current, "cuCtxGetDevice");
    find(stream_context, "cuStreamGetCtx");
    find(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
    find(host_register, "cuMemHostRegister_v2");
    find(host_unregister, "cuMemHostUnregister");
    find(host_device_pointer, "cuMemHostGetDevicePointer_v2");
    find(batch, "cuStreamBatchMemOp_v2");
    find(copy, "cuMemcpyDtoDAsync_v2");
    find(fill, "cuMemsetD8Async");
    const char* const needed = missing;
    find(load_module, "cuModuleLoadData");
    find(function_of, "cuModuleGetFunction");
    find(launch, "cuLaunchKernel");
    find(launch_ex, "cuLaunchKernelEx");
    find(is_capturing, "cuStreamIsCapturing");
    return needed;
  }
};

const CudaDriver* CudaDriver::Get(Outcome& why) {
  struct Opened {
    const CudaDriver* driver = nullptr;
    Outcome why;
  };
  static const Opened* const kOpened = [] {
    auto* opened = new Opened;
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* reason = dlerror();
      opened->why = {Code::kFailedPrecondition,
                     std::string("a stream needs CUDA's driver, which this process has not: ") +
                         (reason == nullptr ? "libcuda.so.1" : reason) +
                         "; ring from the host instead"};
      return opened;
    }
    auto* calls = new Calls;
    if (const char* missing = calls->Load(library)) {
      opened->why = {Code::kFailedPrecondition,
                     std::string("libcuda.so.1 has no ") + missing +
                         "; a driver of CUDA 11.7 or later is needed to ring from a stream"};
      return opened;
    }
    const auto* driver = new CudaDriver(*calls);
    if (const int code = calls->init(0); code != 0) {
      opened->why = driver->Failed(code, "cuInit");
      return opened;
    }
    opened->driver = driver;
    return opened;
  }();
  why = kOpened->why;
  return kOpened->driver;
}

Outcome CudaDriver::Failed(int code, const char* what) const {
  const char* name = nullptr;
  if (calls_.error_name(code, &name) != 0 || name == nullptr) name = "CUDA error";
  return {Code::kFailedPrecondition,
          std::string(what) + ": " + name + " (" + std::to_string(code) + ")"};
}

Outcome CudaDriver::ContextOf(CudaStream stream, CudaContext& context) const {
  if (stream != nullptr) {
    const int code = calls_.stream_context(stream, &context);
    return code == 0 ? Outcome() : Failed(code, "the stream's context");
  }
  const int code = calls_.current(&context);
  if (code != 0) return Failed(code, "the thread's CUDA context");
  if (context != nullptr) return {};
  return Failed(kInvalidContext, "the default stream of a thread without a CUDA context");
}

Outcome CudaDriver::GpuOf(CudaContext context, std::string& uuid) const {
  if (const int code = calls_.push(context)) return Failed(code, "entering a CUDA context");
  Device device = 0;
  std::array<unsigned char, 16> bytes = {};
  int code = calls_.device_of_current(&device);
  if (code == 0) code = calls_.device_uuid(bytes.data(), device);
  CudaContext popped;
  (void)calls_.pop(&popped);
  if (code != 0) return Failed(code, "a GPU's UUID");
  uuid = UuidText(bytes);
  return {};
}

Outcome CudaDriver::PrimaryContextOf(const std::string& uuid, CudaContext& context) const {
  int count = 0;
  if (const int code = calls_.device_count(&count)) return Failed(code, "counting GPUs");
  for (Device device = 0; device < count; ++device) {
    std::array<unsigned char, 16> bytes = {};
    if (const int code = calls_.device_uuid(bytes.data(), device))
      return Failed(code, "a GPU's UUID");
    if (UuidText(bytes) != uuid) continue;
    const int code = calls_.retain_primary(&context, device);
    return code == 0 ? Outcome() : Failed(code, "opening the GPU");
  }
  return {Code::kFailedPrecondition, "this process does not see " + uuid + " among its " +
                                         std::to_string(count) +
                                         " GPUs; look at CUDA_VISIBLE_DEVICES"};
}

// While it lives, this thread may register memory although some stream is being captured, of which
// that is no part: else the capture would end.
struct CudaDriver::BesideCaptures {
  const Calls& calls;
  int mode = kCaptureRelaxed;

  explicit BesideCaptures(const Calls& used) : calls(used) {
    (void)calls.exchange_capture_mode(&mode);
  }
  ~BesideCaptures() { (void)calls.exchange_capture_mode(&mode); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;
};

Outcome CudaDriver::Register(CudaContext context, void* data, size_t size_bytes,
                             uint64_t& address) const {
  if (const int code = calls_.push(context)) return Failed(code, "entering a CUDA context");
  const BesideCaptures beside(calls_);
  int code = calls_.host_register(data, size_bytes, kRegisterFlags);
  if (code == kAlreadyRegistered) code = 0;  // portable: by another context of this process
  if (code == 0) code = calls_.host_device_pointer(&address, data, 0);
  CudaContext popped;
  (void)calls_.pop(&popped);
  return code == 0 ? Outcome() : Failed(code, "registering shared memory with the GPU");
}

void CudaDriver::Unregister(CudaContext context, void* data) const {
  if (calls_.push(context) != 0) return;
  const BesideCaptures beside(calls_);
  (void)calls_.host_unregister(data);
  CudaContext popped;
  (void)calls_.pop(&popped);
}

Outcome CudaDriver::Queue(CudaStream stream, std::span<const MemoryStep> steps) const {
  std::array<BatchStep, kMostSteps> batch = {};
  if (steps.size() > batch.size()) {
    return {Code::kInvalidArgument,
            std::to_string(steps.size()) + " steps at once; 8 are the most"};
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool write = steps[i].kind == MemoryStep::Kind::kWrite;
    batch[i] = {.operation = write ? kWriteValue32 : kWaitValue32,
                .address = steps[i].address,
                .value = steps[i].value,
                .flags = write ? kWriteDefault : kWaitAtLeast};
  }
  const int code = calls_.batch(stream, static_cast<unsigned>(steps.size()), batch.data(), 0);
  return code == 0 ? Outcome() : Failed(code, "cuStreamBatchMemOp");
}

Outcome CudaDriver::Copy(CudaStream stream, uint64_t to, uint64_t from, size_t size_bytes) const {
  const int code = calls_.copy(to, from, size_bytes, stream);
  return code == 0 ? Outcome() : Failed(code, "cuMemcpyDtoDAsync");
}

Outcome CudaDriver::Fill(CudaStream stream, uint64_t to, uint8_t value, size_t size_bytes) const {
  const int code = calls_.fill(to, value, size_bytes, stream);
  return code == 0 ? Outcome() : Failed(code, "cuMemsetD8Async");
}

RingKernels CudaDriver::RingKernelsFor(CudaContext context) const {
  if (calls_.load_module == nullptr || calls_.function_of == nullptr || calls_.launch == nullptr) {
    return {};
  }
  // Of each context once: a process may open many sessions.
  static std::mutex mu;
  static auto* const known = new std::vector<std::pair<CudaContext, RingKernels>>;
  const std::lock_guard lock(mu);
  for (const auto& [of, kernels] : *known) {
    if (of == context) return kernels;
  }
  if (calls_.push(context) != 0) return {};
  CudaModule module = nullptr;  // lives as long as the context
  RingKernels kernels;
  if (calls_.load_module(&module, kCopyKernelPtx) != 0 ||
      calls_.function_of(&kernels.copy_and_ring, module, kCopyKernelName) != 0 ||
      calls_.function_of(&kernels.ring, module, kRingKernelName) != 0) {
    kernels = {};  // of a GPU older than Hopper
  }
  CudaContext popped;
  (void)calls_.pop(&popped);
  known->emplace_back(context, kernels);
  return kernels;
}

// Outside of captures it may overlap the end of the kernel before it. A graph takes such a launch
// behind a kernel alone, and nobody knows which node stands in front.
Outcome CudaDriver::CopyAndRing(CudaStream stream, const RingKernels& kernels,
                                const HandOver& what) const {
  HandOver to_pass = what;
  uint64_t chunks = what.size_bytes / kCopyChunkBytes;
  void* arguments[] = {&to_pass.to, &to_pass.from, &chunks, &to_pass.gate, &to_pass.done};
  const CudaFunction kernel = chunks > 0 ? kernels.copy_and_ring : kernels.ring;
  const unsigned ctas = chunks > 0 ? kCopyCtas : 1, threads = chunks > 0 ? CopyThreads(chunks) : 1;
  int capturing = 1;
  if (calls_.launch_ex != nullptr && calls_.is_capturing != nullptr &&
      calls_.is_capturing(stream, &capturing) != 0) {
    capturing = 1;
  }
  int code = 0;
  if (capturing == 0) {
    LaunchAttribute overlap = {.id = kProgrammaticSerialization, .value = 1};
    const LaunchConfig config = {{ctas, 1, 1}, {threads, 1, 1}, 0, stream, &overlap, 1};
    code = calls_.launch_ex(&config, kernel, arguments, nullptr);
  } else {
    code = calls_.launch(kernel, ctas, 1, 1, threads, 1, 1, /*shared bytes=*/0, stream, arguments,
                         nullptr);
  }
  return code == 0 ? Outcome() : Failed(code, "cuLaunchKernel of the copy that rings");
}

bool CopiesByKernel(uint64_t to, uint64_t from, size_t size_bytes) {
  return size_bytes <= kMostCopyBytes && (to | from | size_bytes) % kCopyChunkBytes == 0;
}

}  // namespace gemmd::armed
