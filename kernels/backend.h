// The seam between the server and a device. A Backend is one device: it tells what it is, owns
// memory, compiles lists of Ops into Programs, and runs them on Streams. The CPU and CUDA backends
// implement exactly this and nothing is optional.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "kernels/host_bytes.h"
#include "kernels/host_memory.h"
#include "kernels/kernel.h"
#include "kernels/op.h"
#include "kernels/sensors.h"
#include "kernels/stop.h"
#include "kernels/tuner.h"

namespace gemmd::kernels {

struct DeviceInfo {
  std::string name;          // "cpu:0", "cuda:0": the label `device` everywhere
  std::string model;         // "Intel(R) Xeon(R) Processor, 2 threads", "NVIDIA H200"
  std::string architecture;  // "x86_64+avx512", "sm_90"
  int64_t memory_bytes = 0;  // what buffers may take in all
  // The most that matmuls can do a second, by the dtype of their operand a; 0 when unknown.
  std::array<double, kAllDTypes> peak_flops = {};
  double memory_bytes_per_s = 0;  // 0 when unknown
  std::string gpu_uuid;           // "GPU-5c3f...", as nvidia-smi prints it; empty for a CPU
  int gpu_ordinal = -1;           // as the CUDA runtime counts; -1 for a CPU
  int numa_node = -1;             // of the host, that its threads are bound to; -1: none
  std::shared_ptr<const Sensors> sensors;  // shared by copies of this; null when it has none
};

enum class MemoryKind : uint8_t {
  kDevice,          // where kernels read and write; not visible to other processes
  kHostShared,      // a sealed memfd that same-host clients map; on the CPU backend kernels use it
                    // directly
  kDeviceShared,    // device memory alone in its allocation, which other processes map
  kDeviceImported,  // another process's device memory, mapped here
};

// The driver shares device memory in blocks of this size, whole: anything else in the block of an
// allocation would be shared with it. So a kDeviceShared allocation takes a multiple of this.
inline constexpr int64_t kDeviceSharedBlockBytes = 2 << 20;

// What another process of the host needs to map a piece of device memory. Bytes, not a right by
// itself: who has it can map the memory, so it travels only where the host is proven.
struct DeviceHandle {
  std::string handle;        // 64 bytes: cudaIpcMemHandle_t of the base of an allocation
  int64_t offset_bytes = 0;  // from that base
  int64_t size_bytes = 0;
  std::string gpu_uuid;  // DeviceInfo::gpu_uuid
};

// One allocation, 256-byte aligned, freed on destruction. Contents start as zeros.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual int64_t size_bytes() const = 0;
  virtual MemoryKind kind() const = 0;
  // What Bindings::slots takes: a device address.
  virtual std::byte* address() const = 0;
  // Host copies, ordered with nothing: the caller makes sure no program in flight races with them.
  // OUT_OF_RANGE outside the allocation. Thread-safe for disjoint ranges.
  // Gather copies its sources one behind the other: many small ones cost a device one transfer.
  using Sources = absl::Span<const absl::Span<const std::byte>>;
  virtual absl::Status Gather(int64_t offset_bytes, Sources sources) = 0;
  absl::Status CopyIn(int64_t offset_bytes, absl::Span<const std::byte> source) {
    return Gather(offset_bytes, Sources(&source, 1));
  }
  virtual absl::Status CopyOut(int64_t offset_bytes, absl::Span<std::byte> target) const = 0;
  // The descriptor behind a kHostShared allocation, owned by this object; -1 for the others.
  virtual int shared_fd() const = 0;
  // How other processes map a kDeviceShared allocation; they unmap it before it is freed.
  // FAILED_PRECONDITION for the other kinds.
  virtual absl::StatusOr<DeviceHandle> Share() const = 0;
};

// A list of Ops validated and compiled for one device. Immutable; may run many times and
// concurrently.
class Program {
 public:
  struct Step {
    std::string_view op;  // kernels::Name(op)
    DType dtype;          // operand a's for matmul, the destination's for the rest
    KernelChoice choice;
    double flops = 0;
    double bytes = 0;
  };
  virtual ~Program() = default;
  virtual absl::Span<const Step> steps() const = 0;  // one per op, in order
  // Sum of the steps' estimates; the scheduler's currency until the true time is known.
  virtual double estimated_seconds() const = 0;
  // The shapes that it multiplies and that a Tuner may be asked to measure, each once.
  virtual absl::Span<const ShapeCalls> tunable() const { return {}; }
};

// A point in the work of one stream, behind which work of other streams and devices may be told to
// stay. Of the backend that made it; set once, by the run whose Bindings have it in `marks`.
class Mark {
 public:
  virtual ~Mark() = default;
};

// One to be set behind op `op` of a program, and all ops before it.
struct MarkBehind {
  int op = 0;
  std::shared_ptr<Mark> mark;
};

// Memory for one run. Everything pointed at stays valid until the launch's `done` has run.
struct Bindings {
  std::vector<std::byte*> slots;    // by TensorRef::slot
  std::vector<HostBytes> inputs;    // by WriteOp::input
  std::vector<OutputSpan> outputs;  // by ReadOp::output
  const Stop* stop = nullptr;       // may end the run early; null: nothing does
  // A 32-bit word of a kHostShared allocation, by its device address, that the device sets to 1
  // behind the last op. Null, or left alone by a backend that signals nothing: LaunchResult tells.
  std::byte* signal = nullptr;
  bool stream_waits = false;  // for `signal`, in this process or another
  // Marks of runs that were launched before this one, on any stream of backends that make marks: it
  // begins on the device when they are set. The host does not wait.
  std::vector<std::shared_ptr<Mark>> after;
  std::vector<MarkBehind> marks;  // by their ops, ascending; empty: nobody waits
};

// How a program reached the device.
enum class LaunchWay : uint8_t {
  kOps,            // op by op
  kGraph,          // by one replay of what an earlier run of it recorded
  kCaptureFailed,  // op by op, because recording it failed; not tried again on this memory
  kChained,        // an armed plan's, kernel by kernel, each under the end of the one in front
};
inline constexpr int kLaunchWays = 4;

struct LaunchResult {
  absl::Status status;
  LaunchWay way = LaunchWay::kOps;
  // Why it ended before its last op; then `status` is not OK, and op_seconds has what ran.
  StopCause stopped = StopCause::kNone;
  absl::Time started;             // when the device began
  double device_seconds = 0;      // start of the first op to the end of the last
  std::vector<float> op_seconds;  // one per step that ran
  // Whether those were measured, each op from the end of the one before it; else they are shares of
  // device_seconds by the estimates.
  bool ops_timed = false;
  // Whether the device sets, or has set, Bindings::signal by itself.
  bool signalled = false;
  // The next program launched has ended too: its `done` runs as soon as this one has returned.
  bool more = false;
};

// An ordered queue on a device. Thread-compatible: one caller at a time (the lane).
class Stream {
 public:
  using Done = absl::AnyInvocable<void(LaunchResult) &&>;
  virtual ~Stream() = default;  // waits for what was launched
  // Queues `program` behind what was launched before and returns without waiting for it. `done`
  // runs exactly once, in launch order, on a thread of the stream, or on the caller's before Launch
  // returns when the device is idle and the program is small enough that a thread hop would cost
  // more than the work (see StreamOptions::inline_below).
  virtual void Launch(std::shared_ptr<const Program> program, Bindings bindings, Done done) = 0;
  // The same, for a caller that has nothing to do until the answer is there: on an idle device a
  // program estimated below StreamOptions::inline_below, or on a GPU below 200 us unless that is
  // zero, may be waited for, and `done` run, on its thread.
  virtual void LaunchAndWait(std::shared_ptr<const Program> program, Bindings bindings,
                             Done done) = 0;
  // Whether a launch costs the host so much that a backlog is better launched by a thread that does
  // nothing else.
  virtual bool prefers_one_launcher() const { return false; }
};

struct StreamOptions {
  absl::Duration inline_below =
      absl::Microseconds(50);  // estimated; zero never runs on the caller's thread
};

class Backend {
 public:
  virtual ~Backend() = default;  // every Memory, Program and Stream of it is gone by then
  virtual const DeviceInfo& info() const = 0;
  virtual absl::Span<const KernelInfo> kernels() const = 0;
  // OK while the device serves. After a fatal error the fault (kernels/fault.h), for good, and so
  // is the status of everything that needs the device. Thread-safe, and does not ask the device.
  virtual absl::Status health() const = 0;
  // Host memory that it holds pinned for copies and for programs' inline data, used and idle. That
  // of kHostShared allocations is not counted. Thread-safe.
  virtual int64_t pinned_bytes() const { return 0; }
  // OK when programs that run here may read and write memory of `home`, another device of this
  // process, by its address: a Copy's src, a Matmul's d. Memory that `home` has imported is no part
  // of that. UNIMPLEMENTED, with the remedy, when they cannot; this device's fault once it has one.
  // Thread-safe; the first call for a `home` may take the driver milliseconds.
  virtual absl::Status CanReach(const Backend& home) const = 0;
  // Whether streams here set Bindings::signal. Thread-safe.
  virtual bool signals() const { return false; }

  // INVALID_ARGUMENT for size_bytes <= 0 and kDeviceImported, RESOURCE_EXHAUSTED when the device
  // has not enough, UNIMPLEMENTED for kDeviceShared on a device whose memory is the host's.
  // Thread-safe.
  virtual absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t size_bytes, MemoryKind kind) = 0;
  // Takes a client's memfd (duplicated; the caller keeps its own). FAILED_PRECONDITION unless it is
  // sealed against shrinking: an unsealed one could be truncated under a running kernel.
  virtual absl::StatusOr<std::unique_ptr<Memory>> ImportShared(int fd, int64_t size_bytes) = 0;
  // Maps another process's device memory (kDeviceImported) until the result is destroyed. Its bytes
  // are the client's: not cleared, and read as they are when a program runs, so whoever writes them
  // has finished by then. INVALID_ARGUMENT for a handle that cannot be one, FAILED_PRECONDITION,
  // with the remedy, when the memory is another GPU's or smaller than the handle says, or its owner
  // is gone; UNIMPLEMENTED on a device whose memory is the host's. Thread-safe.
  virtual absl::StatusOr<std::unique_ptr<Memory>> ImportDevice(const DeviceHandle& handle) = 0;

  // Memory for what a Read of a program here brings, which the device writes by itself if it can.
  // Thread-safe. What it gives may outlive the backend.
  virtual std::unique_ptr<HostMemory> AllocateOutput(int64_t size_bytes) = 0;

  // `ops` have passed ValidateOps against `slots`. UNIMPLEMENTED when no enabled kernel serves an
  // op here, with the reason of each candidate. Thread-safe, pure.
  virtual absl::StatusOr<std::shared_ptr<const Program>> Compile(absl::Span<const Op> ops) = 0;
  // Every kernel considered for `problem`, best first, infeasible ones last.
  virtual std::vector<Candidate> Explain(const MatmulProblem& problem) const = 0;
  // The same of a grouped matmul that has passed ValidateOps, whatever kernel it insists on.
  virtual std::vector<Candidate> ExplainGrouped(const GroupedMatmulOp& op) const = 0;
  virtual std::vector<Candidate> ExplainKGrouped(const KGroupedMatmulOp& op) const = 0;

  virtual std::unique_ptr<Stream> CreateStream(const StreamOptions& options) = 0;

  // Null where the choice of kernels is not measured while serving. The backend's own.
  virtual Tuner* tuner() { return nullptr; }

  // Whether streams wait for one another by themselves. Otherwise the host waits for a run's end.
  virtual bool makes_marks() const { return false; }
  // For a run here to set; null from a backend that makes none. Thread-safe.
  virtual absl::StatusOr<std::shared_ptr<Mark>> MakeMark() { return std::shared_ptr<Mark>(); }
};

}  // namespace gemmd::kernels
