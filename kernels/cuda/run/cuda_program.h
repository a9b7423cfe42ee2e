// CudaProgram: ops with a kernel chosen for each, ready to run on any memory of their sizes.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/backend.h"
#include "kernels/cuda/args/op_args.h"
#include "kernels/cuda/experts/dispatch.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "kernels/cuda/grouped/k_grouped_op.h"
#include "kernels/cuda/matmul/pool.h"
#include "kernels/cuda/run/end_forecast.h"
#include "kernels/cuda/run/graph_cache.h"
#include "kernels/cuda/run/independent.h"
#include "kernels/cuda/run/peer_sends.h"

namespace gemmd::kernels::cuda {

// What a device compiles with. Outlives its programs: their steps point at names in it.
struct KernelSet {
  explicit KernelSet(GemmPoolOptions options)
      : device(options.device), matmul(std::move(options)) {}

  const DeviceTraits device;
  GemmPool matmul;
  // The kernel of each other op, by Op's index, matmul's empty. Empty too when disabled: programs
  // with that op do not compile.
  std::array<std::string_view, std::variant_size_v<Op>> others;
  // The TMA kernels of grouped matmuls (TmaGroupedName) that are not disabled.
  std::vector<std::string_view> tma_grouped;
  std::string_view fp8_gate;                // those that apply a gate; likewise
  std::vector<std::string_view> k_grouped;  // of groups of columns (GradientName), as tma_grouped
  double memory_bytes_per_s = 0;

  // Those for operands like `a`; empty when disabled.
  std::string_view TmaGrouped(const Operand& a) const {
    return Enabled(tma_grouped, TmaGroupedName(a));
  }
  std::string_view KGrouped(DType a) const { return Enabled(k_grouped, GradientName(a)); }

 private:
  static std::string_view Enabled(const std::vector<std::string_view>& kernels,
                                  std::string_view name) {
    const auto found = std::find(kernels.begin(), kernels.end(), name);
    return found == kernels.end() ? std::string_view() : *found;
  }
};

// Rows of a matmul's result that PeerSends takes to another GPU.
struct SentPiece {
  std::array<std::shared_ptr<const PreparedMatmul>, PeerSends::kPlaces> into;  // by place
  std::byte* to = nullptr;
  int64_t bytes = 0;
};

// What a program's launches need of the memory that they are for.
struct Launches {
  // By members of the pool, in order; null where the result is sent.
  std::vector<std::shared_ptr<const PreparedMatmul>> matmuls;
  std::vector<GroupedLaunches> grouped;  // of its grouped matmuls, in order
  std::vector<KGroupedLaunches> k_grouped;
  std::vector<bool> independent;  // by op (independent.h); empty: none is
  std::vector<bool> dispatched;   // by op: a route whose rows the op behind it gathers by; likewise
  std::vector<bool> numbers_first;  // by op: a combine that need not wait for its numbers; likewise
  std::vector<std::vector<SentPiece>> sent;  // by op; empty: no result is
  std::vector<bool> stores_far;              // by op: a matmul that stores on another GPU by itself

  bool Sends(size_t op) const { return op < sent.size() && !sent[op].empty(); }
  int sends = 0;  // pieces of all ops
};

struct PreparedLaunches {
  std::shared_ptr<const Launches> launches;
  bool again = false;  // the program ran on this memory before, as far as it remembers
};

// Where one run takes place. Addresses are the device's.
struct RunContext {
  SlotAddresses slots;
  const Launches& launches;  // of Prepare, for the same slots and scratch
  std::byte* scratch;        // scratch_bytes() at a multiple of 256; one op's at a time
  std::byte* io;             // pinned, io_bytes()
  cudaStream_t stream;
  absl::Span<const OutputSpan> outputs = {};  // after AimReads; none while a graph is recorded
  // Of the same stream, whose end the first op's kernel may overlap.
  enum class Front : uint8_t {
    kOther,     // no kernel
    kRun,       // another run's: it writes what this one may read
    kOwnBegin,  // LaunchBegin, in front of which all is through: nothing to wait for
  } front = Front::kOther;
  PeerSends* sends = nullptr;  // of the stream; null while a graph is recorded

  bool IsDispatched(size_t op) const {
    return op < launches.dispatched.size() && launches.dispatched[op];
  }
  bool IsIndependent(size_t op) const {
    if (op == 0 && front == Front::kOwnBegin) return true;
    return op < launches.independent.size() && launches.independent[op];
  }
};

// Immutable after Compile but for what it remembers.
class CudaProgram final : public Program {
 public:
  // Bindings whose launches are remembered; one more forgets them all. A plan has a handful.
  static constexpr int kMaxRemembered = 16;

  // The contract of Backend::Compile. kEveryOp times each op, however short.
  enum class Timing { kLongOps, kEveryOp };
  static absl::StatusOr<std::shared_ptr<const Program>> Compile(absl::Span<const Op> ops,
                                                                const KernelSet& kernels,
                                                                Timing timing = Timing::kLongOps);

  absl::Span<const Step> steps() const override { return steps_; }
  double estimated_seconds() const override { return estimated_seconds_; }
  absl::Span<const ShapeCalls> tunable() const override { return tunable_; }

  // Long ops are timed one by one; between short ones an event would cost more than it tells, and
  // keep each from starting under the end of the one before it.
  bool timed() const { return timed_; }
  // Whether replaying it as a graph is worth while. Not of programs that are timed: their ops take
  // so long that launching them is nothing, and a graph has no place for the events between them.
  // Of one op it is, too: a kernel's launch takes the host longer than a graph's.
  // One move by the copy engine is no quicker.
  bool capturable() const { return !timed_ && steps_.size() > (by_engine_ > 0 ? 1 : 0); }
  // Whether the last entry of a run on its stream is a kernel, whose end another's may overlap.
  bool ends_with_kernel() const { return ends_with_kernel_; }
  uint64_t serial() const { return serial_; }  // never another program's of this process
  int64_t scratch_bytes() const { return scratch_bytes_; }
  int64_t io_bytes() const { return io_bytes_; }
  // Of its runs, by whoever waits for them.
  EndForecast& forecast() const { return forecast_; }

  // INVALID_ARGUMENT when the bindings do not have what the ops name: a caller's bug, but memory
  // must not pay for it.
  absl::Status CheckBindings(const Bindings& bindings) const;

  // Between the callers' inline bytes and `io`: before the launches, and, of what the device could
  // not write where it belongs, after they are through.
  void CopyInputs(const Bindings& bindings, std::byte* io) const;
  void CopyOutputs(const std::byte* io, const Bindings& bindings) const;
  // What its ops found wrong with numbers that they read, once they are through: the first op's.
  absl::Status FaultOf(const std::byte* io) const;
  // Whether some op may find anything: then the host has to look before anybody is told of the end.
  bool may_fault() const { return !faulting_.empty(); }
  // Settles which of the outputs the device writes by itself: `device_writes` of the others becomes
  // false. Of a graph, which was recorded with all of them in `io`, it redirects the copies.
  absl::Status AimReads(Bindings& bindings, std::byte* io, Graph* graph) const;

  // Results of so many bytes are sent to another GPU; kernels store fewer there in less time than
  // launching a copy takes the host.
  static constexpr int64_t kFewestSentBytes = 3 << 20;
  // Of a piece, so that room for them stays small beside what is computed.
  static constexpr int64_t kMostSentBytes = 64 << 20;

  // The launches for this memory, remembered from the last time or made. The program's device is
  // current. Queues nothing, but may have `sends` grow for `stream`; null: nothing is sent.
  absl::StatusOr<PreparedLaunches> Prepare(SlotAddresses slots, std::byte* scratch,
                                           PeerSends* sends = nullptr,
                                           cudaStream_t stream = nullptr) const
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether its copy engine's work reaches from one device's memory into another's. As a node of a
  // graph such a copy knows the other's allocation, not its address alone: once that is freed the
  // driver may refuse the graph's launch, or crash in it. Such a program is launched op by op.
  bool CopiesAcross(SlotAddresses slots) const;

  // What a graph of it on this memory is known by. The slots were checked.
  GraphKey KeyOf(SlotAddresses slots, std::byte* scratch) const;

  // Queues op `index` behind the ones before it. The program's device is current.
  absl::Status LaunchStep(size_t index, const RunContext& context) const;

 private:
  struct Task {
    Op op;
    std::optional<int> member;                // of the pool, of a matmul
    int launch_index = 0;                     // in Launches, among those of its kind
    std::optional<GroupedLayout> grouped;     // of a grouped matmul
    std::optional<KGroupedLayout> k_grouped;  // of a k-grouped matmul
    int64_t fault_offset = 0;                 // in io, of an op that reads numbers
    bool overlap = false;                     // may start under the end of the op before it
    int64_t io_offset = 0;                    // of a Write or Read
    int64_t io_bytes = 0;                     // likewise
    // Dense and large: what of it goes over PCIe is the copy engine's. Of a Write, Read or Copy.
    bool by_engine = false;
  };
  using Key = std::vector<const std::byte*>;  // the slots, then the scratch if it is used

  Key AddressesOf(SlotAddresses slots, std::byte* scratch) const;
  // Compiling (cuda_program.cc) and choosing (program_choice.cc).
  absl::Status AddTask(const Op& op, const KernelSet& kernels);
  void AddNeeds(Task& task);
  void AddTunable(const MatmulOp& op, ChoiceReason reason);
  void PlanOverlaps();
  static uint64_t NextSerial();
  absl::StatusOr<KernelChoice> ChooseMatmul(const MatmulOp& op, const KernelSet& kernels,
                                            Task& task);
  absl::StatusOr<KernelChoice> ChooseKGrouped(const KGroupedMatmulOp& op, const KernelSet& kernels,
                                              Task& task);
  absl::StatusOr<KernelChoice> ChooseGrouped(const GroupedMatmulOp& op, const KernelSet& kernels,
                                             Task& task);
  static absl::StatusOr<KernelChoice> ChooseOther(const Op& op, const KernelSet& kernels);
  // Launching (program_launch.cc).
  absl::StatusOr<std::shared_ptr<const Launches>> MakeLaunches(SlotAddresses slots,
                                                               std::byte* scratch,
                                                               const std::vector<bool>& far,
                                                               const PeerSends* sends) const;
  // What another GPU's memory is part of (program_far.cc).
  std::vector<bool> StoreFar(SlotAddresses slots) const;     // by op; empty: none does
  std::vector<MatmulOp> PiecesOf(size_t index) const;        // empty: its result is not sent
  int64_t LargestPiece(const std::vector<bool>& far) const;  // in bytes; 0: nothing is sent
  absl::Status AddPieces(size_t index, SlotAddresses slots, std::byte* scratch,
                         const PeerSends& sends, Launches& launches) const;
  absl::Status LaunchSent(size_t index, const RunContext& context) const;
  // Before an op that touches another GPU's memory by itself.
  absl::Status JoinSends(size_t index, const RunContext& context) const;
  bool Overlaps(const Task& task, const RunContext& context) const;
  DataFault* FaultAt(const Task& task, const RunContext& context) const;
  // Of a route and the quantisation behind it (experts/dispatch.h).
  bool MayDispatch(size_t route, SlotAddresses slots) const;
  bool RoutesInDispatch(const DispatchArgs& args) const;
  DispatchArgs DispatchOf(size_t route, SlotAddresses slots) const;
  // Whether the op's kernel may read these tensors before the op in front has ended.
  bool WereThereBefore(size_t index, const Launches& launches,
                       absl::Span<const TensorRef* const> tensors, SlotAddresses slots) const;
  absl::Status LaunchDispatched(size_t route, size_t index, const RunContext& context) const;
  absl::Status LaunchMove(size_t index, const RunContext& context) const;
  absl::Status LaunchCopy(size_t index, const CopyOp& op, const RunContext& context) const;

  const uint64_t serial_ = NextSerial();
  DeviceTraits device_;
  const GemmPool* pool_ = nullptr;
  std::vector<Task> tasks_;
  std::vector<OpTouches> touches_;  // by task
  std::vector<size_t> moves_;       // those that are Writes or Reads
  std::vector<size_t> faulting_;    // those that read numbers
  std::vector<Step> steps_;
  std::vector<ShapeCalls> tunable_;
  double estimated_seconds_ = 0;
  bool timed_ = false;
  bool ends_with_kernel_ = false;
  int matmuls_ = 0;
  size_t by_engine_ = 0;  // ops that the copy engine may do
  int grouped_ = 0;
  int k_grouped_ = 0;
  int64_t scratch_bytes_ = 0;
  int64_t io_bytes_ = 0;
  size_t slots_needed_ = 0;
  mutable EndForecast forecast_;
  mutable absl::Mutex mutex_;
  mutable absl::flat_hash_map<Key, std::shared_ptr<const Launches>> remembered_
      ABSL_GUARDED_BY(mutex_);  // shared: forgotten while a launch reads it
};

}  // namespace gemmd::kernels::cuda
