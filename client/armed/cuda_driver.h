// The calls of CUDA's driver that ringing a slot from a stream takes, from libcuda.so.1 opened at
// run time: nothing here needs CUDA to be built, or to run where nobody asks for a stream.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "client/armed/outcome.h"

struct CUstream_st;
struct CUctx_st;
struct CUfunc_st;

namespace gemmd::armed {

using CudaStream = CUstream_st*;  // a CUstream or cudaStream_t; null is the legacy default stream
using CudaContext = CUctx_st*;
using CudaFunction = CUfunc_st*;

// One step of a stream on 32 bits of memory that a GPU reaches.
struct MemoryStep {
  enum class Kind { kWrite, kWaitAtLeast };
  Kind kind;
  uint64_t address;  // as the stream's GPU sees it
  uint32_t value;
};

// The kernels of copy_kernel.h: both, or none.
struct RingKernels {
  CudaFunction copy_and_ring = nullptr, ring = nullptr;
  bool any() const { return ring != nullptr; }
};

// What they are told; addresses as the stream's GPU sees them.
struct HandOver {
  uint64_t to, from, size_bytes;
  uint64_t gate, done;
};

// Thread-safe, and alive until the process ends.
class CudaDriver {
 public:
  // The process's driver, opened by the first call. Null where there is none or no GPU: `why` says
  // so.
  static const CudaDriver* Get(Outcome& why);

  // The context that a stream's work runs in: of the default stream, the thread's current one.
  Outcome ContextOf(CudaStream stream, CudaContext& context) const;
  // "GPU-5c3f12ab-...", as the daemon names the GPU of a context.
  Outcome GpuOf(CudaContext context, std::string& uuid) const;
  // The primary context of the GPU of that name, kept for as long as the process lives. It is the
  // one that torch and CUDA's runtime use.
  Outcome PrimaryContextOf(const std::string& uuid, CudaContext& context) const;

  // Makes [data, data + size_bytes) of this process reachable for the context's GPU at `address`.
  // Both ends lie on page boundaries.
  Outcome Register(CudaContext context, void* data, size_t size_bytes, uint64_t& address) const;
  void Unregister(CudaContext context, void* data) const;

  // Queues the steps in order, all or none. A write is seen after everything the stream did before.
  Outcome Queue(CudaStream stream, std::span<const MemoryStep> steps) const;
  // The kernels of copy_kernel.h for that context; none where the driver or the GPU cannot have
  // them.
  RingKernels RingKernelsFor(CudaContext context) const;
  // Queues one: what a write of 0 to `done`, Copy and a write of 1 to `gate` do, sooner. See
  // CopiesByKernel.
  Outcome CopyAndRing(CudaStream stream, const RingKernels& kernels, const HandOver& what) const;
  // Queues a copy between memory of GPUs.
  Outcome Copy(CudaStream stream, uint64_t to, uint64_t from, size_t size_bytes) const;
  // And that of a value to each byte of a GPU's memory.
  Outcome Fill(CudaStream stream, uint64_t to, uint8_t value, size_t size_bytes) const;

 private:
  struct Calls;
  struct BesideCaptures;
  explicit CudaDriver(const Calls& calls) : calls_(calls) {}
  Outcome Failed(int code, const char* what) const;

  const Calls& calls_;
};

// Whether the kernel may take a copy; one of no bytes too.
bool CopiesByKernel(uint64_t to, uint64_t from, size_t size_bytes);

}  // namespace gemmd::armed
