#include "kernels/cuda/run/cuda_program.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/stream_copy.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/memory/output_memory.h"
#include "kernels/cuda/ops/op_cost.h"
#include "kernels/grouping.h"
#include "kernels/text.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kIoAlignment = 256;
// Below this a kernel reaches into the pinned block by itself: handing over to the copy engine and
// back takes several microseconds, in which PCIe moves as much.
constexpr int64_t kEngineBytes = 256 << 10;
static_assert(OutputMemory::kFewestBytes == kEngineBytes, "only the engine's copies go there");
// Likewise of a Copy between the device and memory of the host: a kernel is as fast up to here, and
// the op behind it may start under its end.
constexpr int64_t kEngineCopyBytes = 1 << 20;
// Mean estimate of an op from which each is timed: two event records take about a hundredth of it.
constexpr double kTimedOpSeconds = 100e-6;
// Shapes that a program tells of; a model's layers have some five, with few numbers of rows.
constexpr size_t kMostTunable = 64;

absl::Status Annotate(const absl::Status& status, size_t index, const Op& op) {
  return absl::Status(status.code(),
                      absl::StrCat("op ", index, " (", Text(Name(op)), "): ", status.message()));
}

// Whether the tensor's bytes are one run.
bool IsDense(const TensorRef& tensor) {
  const Dims dense = RowMajorStrides(tensor.shape);
  for (int i = 0; i < tensor.shape.rank; ++i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != dense[i]) return false;
  }
  return true;
}

int64_t DenseBytes(const TensorRef& tensor) {
  return NumElements(tensor.shape).value_or(0) * SizeBytes(tensor.dtype);
}

// The tensor of a Write or Read, or null.
const TensorRef* Moved(const Op& op) {
  if (const auto* write = std::get_if<WriteOp>(&op)) return &write->dst;
  if (const auto* read = std::get_if<ReadOp>(&op)) return &read->src;
  return nullptr;
}

absl::StatusOr<KernelChoice> ChooseOther(const Op& op, const KernelSet& kernels) {
  const std::string_view kernel = kernels.others[op.index()];
  if (kernel.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("the kernel for ", Text(Name(op)), " is disabled on this device"));
  }
  return KernelChoice{kernel, ChoiceReason::kOnly, MoveSeconds(op, kernels.memory_bytes_per_s)};
}

cudaError_t Queue(const ConvertArgs& args, cudaStream_t stream) {
  return LaunchConvert(args, stream);
}
cudaError_t Queue(const FillArgs& args, cudaStream_t stream) { return LaunchFill(args, stream); }
cudaError_t Queue(const GatedArgs& args, cudaStream_t stream) { return LaunchGated(args, stream); }
cudaError_t Queue(const RouteArgs& args, cudaStream_t stream) { return LaunchRoute(args, stream); }
cudaError_t Queue(const CombineArgs& args, cudaStream_t stream) {
  return LaunchCombine(args, stream);
}
cudaError_t Queue(const QuantizeArgs& args, cudaStream_t stream) {
  return LaunchQuantize(args, stream);
}

// Whether the op reads row numbers, counts or the like.
bool ReadsNumbers(const Op& op) {
  const auto* quantize = std::get_if<QuantizeOp>(&op);
  return std::holds_alternative<GroupedMatmulOp>(op) || std::holds_alternative<RouteOp>(op) ||
         std::holds_alternative<CombineOp>(op) || (quantize != nullptr && quantize->rows);
}

// Whether the op's first kernel waits for what is in front of it, whatever that touches.
bool WaitsFirst(const Op& op) {
  return std::holds_alternative<MatmulOp>(op) || std::holds_alternative<GroupedMatmulOp>(op) ||
         std::holds_alternative<RouteOp>(op) || std::holds_alternative<CombineOp>(op);
}

constexpr int kHost = -1;

// The ordinal of the GPU whose memory it is, or kHost.
int HomeOf(const void* address) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, address) == cudaSuccess) {
    return attributes.type == cudaMemoryTypeDevice ? attributes.device : kHost;
  }
  cudaGetLastError();
  return kHost;
}

bool IsOnDevice(const void* address) { return HomeOf(address) != kHost; }

}  // namespace

absl::StatusOr<KernelChoice> CudaProgram::ChooseMatmul(const MatmulOp& op, const KernelSet& kernels,
                                                       Task& task) {
  const MatmulProblem problem = ProblemOf(op);
  absl::StatusOr<PoolPick> pick = kernels.matmul.Choose(
      problem, op.kernel, op.deterministic ? GemmPool::By::kShipped : GemmPool::By::kTuned);
  if (!pick.ok()) return pick.status();
  if (std::string why = pick->variant ? WhyNot(op) : ""; !why.empty()) {
    if (!op.kernel.empty()) {
      return absl::UnimplementedError(
          absl::StrCat("kernel ", op.kernel, " cannot serve ", ToString(problem), ": ", why,
                       "; leave kernel empty to let the device choose"));
    }
    pick = kernels.matmul.Choose(problem, kAnyGemmName);
    if (!pick.ok()) {
      return absl::UnimplementedError(
          absl::StrCat("TMA kernels: ", why, "; ", pick.status().message()));
    }
    pick->choice.reason = ChoiceReason::kFallback;
  }
  if (pick->variant) {
    task.variant = pick->variant;
    task.gemm = gemms_++;
    task.copies = CopiesOf(op);
    scratch_bytes_ = std::max(scratch_bytes_, task.copies.scratch_bytes);
    if (op.activation > Activation::kRelu) {
      pick->choice.estimated_seconds +=
          MoveSeconds(ConvertOp{op.d, op.d}, kernels.memory_bytes_per_s);
    }
  } else {
    task.other = kernels.matmul.other(pick->other).launch;
  }
  return pick->choice;
}

absl::StatusOr<KernelChoice> CudaProgram::ChooseGatedMatmul(const MatmulOp& op,
                                                            const KernelSet& kernels, Task& task) {
  // Measured and modelled times differ by as much: only what is clearly faster is taken instead.
  constexpr double kClearly = 0.9;
  const std::string why =
      kernels.fp8_gate.empty() ? "the kernels are disabled on this device" : WhyNotFused(op);
  const bool forced = !op.kernel.empty() && op.kernel == kFp8GateName;
  if (forced && !why.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("kernel ", op.kernel, " cannot serve it: ", why, "; leave kernel empty"));
  }
  const MatmulOp product = ProductOf(op);
  const double gate_seconds =
      MoveSeconds(GatedOf(*op.gate, product.d, op.d, op.d_scales), kernels.memory_bytes_per_s);
  if (why.empty() && (forced || op.kernel.empty())) {
    const double seconds = FusedSeconds(op, kernels.device, kernels.memory_bytes_per_s);
    const auto apart = kernels.matmul.Choose(
        ProblemOf(product), "", op.deterministic ? GemmPool::By::kShipped : GemmPool::By::kTuned);
    if (forced || !apart.ok() ||
        apart->choice.estimated_seconds + gate_seconds >= kClearly * seconds) {
      task.gated = FusedLayout(op);
      task.gemm = fused_++;
      scratch_bytes_ = std::max(scratch_bytes_, task.gated->scratch_bytes);
      return KernelChoice{kernels.fp8_gate, forced ? ChoiceReason::kForced : ChoiceReason::kModel,
                          seconds};
    }
  }
  absl::StatusOr<KernelChoice> choice = ChooseMatmul(product, kernels, task);
  if (!choice.ok()) return choice;
  choice->estimated_seconds += gate_seconds;
  task.gated = ApartLayout(op, task.copies.scratch_bytes);
  if (task.gated->scratch_bytes > kMaxScratchBytes) {
    return absl::UnimplementedError(absl::StrCat("its product takes ", task.gated->scratch_bytes,
                                                 " bytes of scratch memory, limit ",
                                                 kMaxScratchBytes, "; split it"));
  }
  scratch_bytes_ = std::max(scratch_bytes_, task.gated->scratch_bytes);
  return choice;
}

absl::StatusOr<KernelChoice> CudaProgram::ChooseGrouped(const GroupedMatmulOp& op,
                                                        const KernelSet& kernels, Task& task) {
  const std::string_view any = kernels.others[Op(op).index()];
  const std::string_view tma = kernels.TmaGrouped(op.a.values.dtype);
  std::string why = tma.empty() ? "the TMA kernels are disabled on this device" : WhyNotTma(op);
  // What applies the gate, too, has to serve the product.
  std::string why_apart = !why.empty() ? why : WhyNotFp8(op);
  if (why_apart.empty()) {
    why_apart = !op.gate                   ? "it has no gate"
                : kernels.fp8_gate.empty() ? "the kernels are disabled on this device"
                                           : WhyNotFused(op);
  }
  const bool forced = !op.kernel.empty();
  if (forced && op.kernel != any && op.kernel != tma && op.kernel != kernels.fp8_gate) {
    return absl::NotFoundError(
        absl::StrCat("kernel ", op.kernel, " is none for a grouped matmul here; use ", Text(any),
                     ", ", Text(tma), " or, with a gate, ", Text(kernels.fp8_gate)));
  }
  for (const auto& [kernel, lacks] : {std::pair(tma, &why), {kernels.fp8_gate, &why_apart}}) {
    if (!forced || op.kernel != kernel || lacks->empty()) continue;
    return absl::UnimplementedError(
        absl::StrCat("kernel ", op.kernel, " cannot serve it: ", *lacks, "; leave kernel empty"));
  }
  const bool fused = why_apart.empty() && (!forced || op.kernel == kernels.fp8_gate);
  const bool fp8 = fused || (why.empty() && (!forced || op.kernel == tma));
  if (!fp8 && any.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "the kernel for any grouped matmul is disabled on this device; TMA kernels: ", why));
  }
  task.grouped = LayoutOf(op, fp8, fused);
  task.gemm = grouped_++;
  if (task.grouped->scratch_bytes > kMaxScratchBytes) {
    return absl::UnimplementedError(absl::StrCat("it takes ", task.grouped->scratch_bytes,
                                                 " bytes of scratch memory, limit ",
                                                 kMaxScratchBytes, "; split it"));
  }
  scratch_bytes_ = std::max(scratch_bytes_, task.grouped->scratch_bytes);
  const ChoiceReason reason = forced ? ChoiceReason::kForced
                              : fp8  ? ChoiceReason::kModel
                                     : ChoiceReason::kFallback;
  return KernelChoice{fused ? kernels.fp8_gate
                      : fp8 ? tma
                            : any,
                      reason, GroupedSeconds(op, fp8, kernels.memory_bytes_per_s, fused)};
}

void CudaProgram::AddNeeds(Task& task) {
  if (ReadsNumbers(task.op)) {
    faulting_.push_back(tasks_.size() - 1);
    task.fault_offset = io_bytes_;
    io_bytes_ += kIoAlignment;
  }
  if (const auto* route = std::get_if<RouteOp>(&task.op)) {
    scratch_bytes_ = std::max(scratch_bytes_,
                              RouteScratchBytes(route->rows.shape[0], route->offsets.shape[0] - 1));
  }
  ForEachTensor(task.op, [&](const TensorRef& tensor, Access) {
    slots_needed_ = std::max<size_t>(slots_needed_, tensor.slot + 1);
  });
  if (const auto* copy = std::get_if<CopyOp>(&task.op)) {
    task.by_engine =
        DenseBytes(copy->dst) >= kEngineCopyBytes && IsDense(copy->src) && IsDense(copy->dst);
  }
  const TensorRef* moved = Moved(task.op);
  if (moved == nullptr) return;
  moves_.push_back(tasks_.size() - 1);
  task.io_bytes = DenseBytes(*moved);
  task.io_offset = io_bytes_;
  task.by_engine = task.io_bytes >= kEngineBytes && IsDense(*moved);
  io_bytes_ += (task.io_bytes + kIoAlignment - 1) / kIoAlignment * kIoAlignment;
}

// A forced or pinned kernel stays what it is whatever is measured; a Tuner's shapes are FP8's.
void CudaProgram::AddTunable(const MatmulOp& op, ChoiceReason reason) {
  if (!op.kernel.empty() || op.deterministic || op.a.values.dtype != DType::kE4M3) return;
  const MatmulProblem problem = ProblemOf(op);
  const TuneShape shape{RowBucket(problem.m), problem.n, problem.k, problem.d.dtype};
  if (problem.batch != 1 || shape.m == 0 || tunable_.size() >= kMostTunable) return;
  for (ShapeCalls& known : tunable_) {
    if (known.shape == shape && known.reason == reason) return void(++known.calls);
  }
  tunable_.push_back({shape, reason, 1});
}

absl::Status CudaProgram::AddTask(const Op& op, const KernelSet& kernels) {
  Task& task = tasks_.emplace_back();
  task.op = op;
  const auto* matmul = std::get_if<MatmulOp>(&op);
  const auto* grouped = std::get_if<GroupedMatmulOp>(&op);
  const absl::StatusOr<KernelChoice> choice =
      matmul != nullptr    ? (matmul->gate ? ChooseGatedMatmul(*matmul, kernels, task)
                                           : ChooseMatmul(*matmul, kernels, task))
      : grouped != nullptr ? ChooseGrouped(*grouped, kernels, task)
                           : ChooseOther(op, kernels);
  if (!choice.ok()) return Annotate(choice.status(), tasks_.size() - 1, op);
  if (matmul != nullptr && task.variant) {
    AddTunable(matmul->gate ? *task.gated->product : *matmul, choice->reason);
  }
  absl::StatusOr<std::vector<Touched>> touches = TouchesOf(op);
  if (!touches.ok()) return Annotate(touches.status(), tasks_.size() - 1, op);
  touches_.push_back({*std::move(touches)});
  AddNeeds(task);
  steps_.push_back({Name(op), MainTensor(op).dtype, *choice, Flops(op), Bytes(op)});
  estimated_seconds_ += choice->estimated_seconds;
  return absl::OkStatus();
}

// A kernel may be launched to overlap the end of what comes before it only if that is a kernel too.
void CudaProgram::PlanOverlaps() {
  bool after_kernel = false;  // the stream's last entry is the start's event
  for (size_t i = 0; i < tasks_.size(); ++i) {
    Task& task = tasks_[i];
    task.overlap = after_kernel && !timed_;
    touches_[i].may_overlap = task.overlap && !WaitsFirst(task.op);
    // What has no elements may launch nothing.
    after_kernel = !task.by_engine && NumElements(MainTensor(task.op).shape).value_or(0) > 0;
    if (const auto* matmul = std::get_if<MatmulOp>(&task.op)) {
      after_kernel = NumElements(matmul->d.shape).value_or(0) > 0;
    }
  }
  ends_with_kernel_ = after_kernel && !timed_;
}

absl::StatusOr<std::shared_ptr<const Program>> CudaProgram::Compile(absl::Span<const Op> ops,
                                                                    const KernelSet& kernels,
                                                                    Timing timing) {
  auto program = std::make_shared<CudaProgram>();
  program->device_ = kernels.device;
  program->tasks_.reserve(ops.size());
  program->steps_.reserve(ops.size());
  for (const Op& op : ops) {
    if (absl::Status status = program->AddTask(op, kernels); !status.ok()) return status;
  }
  program->timed_ = ops.size() > 1 && (timing == Timing::kEveryOp ||
                                       program->estimated_seconds_ >= kTimedOpSeconds * ops.size());
  program->PlanOverlaps();
  return program;
}

absl::Status CudaProgram::CheckBindings(const Bindings& bindings) const {
  if (bindings.slots.size() < slots_needed_) {
    return absl::InvalidArgumentError(absl::StrCat("the program names ", slots_needed_,
                                                   " slots but ", bindings.slots.size(),
                                                   " are bound; bind them all"));
  }
  const auto check = [](const auto& spans, int index, int64_t bytes, const char* what) {
    if (index >= 0 && static_cast<size_t>(index) < spans.size() &&
        spans[index].size() == static_cast<size_t>(bytes)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", index, " must be bound to ", bytes, " bytes; rebind it"));
  };
  // Of hundreds of ops, looking at all takes as long as launching their graph.
  for (const size_t index : moves_) {
    const Task& task = tasks_[index];
    absl::Status status;
    if (const auto* write = std::get_if<WriteOp>(&task.op)) {
      status = check(bindings.inputs, write->input, task.io_bytes, "input");
    } else if (const auto* read = std::get_if<ReadOp>(&task.op)) {
      status = check(bindings.outputs, read->output, task.io_bytes, "output");
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

void CudaProgram::CopyInputs(const Bindings& bindings, std::byte* io) const {
  for (const size_t index : faulting_) {
    std::memset(io + tasks_[index].fault_offset, 0, sizeof(DataFault));
  }
  for (const size_t index : moves_) {
    const Task& task = tasks_[index];
    const auto* write = std::get_if<WriteOp>(&task.op);
    if (write == nullptr) continue;
    const HostBytes& input = bindings.inputs[write->input];
    std::byte* to = io + task.io_offset;
    if (!task.by_engine) {
      input.CopyTo(to);
      continue;
    }
    // Past the caches, where the copy engine would have to look for it: with 462 KiB in and 512 KiB
    // out, the device's part of a program took 63 to 67 us, and so takes 53.
    for (const HostBytes::Run run : input.runs()) {
      cpu::StreamCopy(to, run.data(), run.size());
      to += run.size();
    }
  }
}

absl::Status CudaProgram::FaultOf(const std::byte* io) const {
  for (const size_t index : faulting_) {
    DataFault fault;
    std::memcpy(&fault, io + tasks_[index].fault_offset, sizeof(fault));
    if (absl::Status status = ToStatus(fault, index, tasks_[index].op); !status.ok()) return status;
  }
  return absl::OkStatus();
}

DataFault* CudaProgram::FaultAt(const Task& task, const RunContext& context) const {
  return reinterpret_cast<DataFault*>(context.io + task.fault_offset);
}

absl::Status CudaProgram::AimReads(Bindings& bindings, std::byte* io, Graph* graph) const {
  for (const size_t index : moves_) {
    const Task& task = tasks_[index];
    const auto* read = std::get_if<ReadOp>(&task.op);
    if (read == nullptr) continue;
    OutputSpan& output = bindings.outputs[read->output];
    std::byte* const staged = io + task.io_offset;
    const bool redirects = graph != nullptr && graph->CopiesTo(staged);
    output.device_writes &= task.by_engine && (graph == nullptr || redirects);
    if (!redirects) continue;
    const cudaError_t code = graph->Redirect(staged, output.device_writes ? output.data() : staged);
    if (code != cudaSuccess) return ToStatus(code, "redirecting a copy");
  }
  return absl::OkStatus();
}

void CudaProgram::CopyOutputs(const std::byte* io, const Bindings& bindings) const {
  for (const size_t index : moves_) {
    const Task& task = tasks_[index];
    const auto* read = std::get_if<ReadOp>(&task.op);
    if (read == nullptr || task.io_bytes == 0) continue;
    const OutputSpan& output = bindings.outputs[read->output];
    if (!output.device_writes) std::memcpy(output.data(), io + task.io_offset, task.io_bytes);
  }
}

uint64_t CudaProgram::NextSerial() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

CudaProgram::Key CudaProgram::AddressesOf(SlotAddresses slots, std::byte* scratch) const {
  Key key;
  key.reserve(slots_needed_ + 1);
  key.assign(slots.begin(), slots.begin() + slots_needed_);
  if (scratch_bytes_ > 0) key.push_back(scratch);
  return key;
}

GraphKey CudaProgram::KeyOf(SlotAddresses slots, std::byte* scratch) const {
  return {.program = serial_, .addresses = AddressesOf(slots, scratch)};
}

absl::StatusOr<PreparedLaunches> CudaProgram::Prepare(SlotAddresses slots, std::byte* scratch,
                                                      bool often) const {
  if (gemms_ == 0 && grouped_ == 0 && fused_ == 0 && !capturable(often)) {
    static const auto& none = *new std::shared_ptr<const Launches>(new Launches);
    return PreparedLaunches{none};
  }
  Key key = AddressesOf(slots, scratch);
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = remembered_.find(key); found != remembered_.end()) {
      return PreparedLaunches{found->second, /*again=*/true};
    }
  }
  auto launches = MakeLaunches(slots, scratch);
  if (!launches.ok()) return launches.status();
  absl::MutexLock lock(&mutex_);
  if (remembered_.size() >= kMaxRemembered) remembered_.clear();
  remembered_.insert_or_assign(std::move(key), *launches);
  return PreparedLaunches{*std::move(launches)};
}

absl::StatusOr<std::shared_ptr<const Launches>> CudaProgram::MakeLaunches(
    SlotAddresses slots, std::byte* scratch) const {
  auto launches = std::make_shared<Launches>();
  launches->independent = IndependentOps(touches_, slots);
  launches->gemms.reserve(gemms_);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const Task& task = tasks_[i];
    if (task.grouped) {
      auto grouped = PrepareGrouped(std::get<GroupedMatmulOp>(task.op), *task.grouped, slots,
                                    scratch, device_);
      if (!grouped.ok()) return Annotate(grouped.status(), i, task.op);
      launches->grouped.push_back(*std::move(grouped));
    }
    if (task.gated && task.gated->fused) {
      auto fused = PrepareFused(std::get<MatmulOp>(task.op), *task.gated, slots, scratch, device_);
      if (!fused.ok()) return Annotate(fused.status(), i, task.op);
      launches->fused.push_back(*std::move(fused));
    }
    if (!task.variant) continue;
    const std::vector<std::byte*> all = SlotsOf(task, slots, scratch);
    const auto& op = task.gated ? *task.gated->product : std::get<MatmulOp>(task.op);
    const Fp8GemmArgs args = Fp8ArgsOf(ArgsOf(op, all), task.copies, scratch);
    // Compile judged offsets; that slots start at multiples of 256 is the caller's word.
    if (std::string why = WhyNot(*task.variant, args); !why.empty()) {
      return Annotate(absl::InvalidArgumentError(why), i, task.op);
    }
    absl::StatusOr<GemmLaunch> launch = PrepareLaunch(*task.variant, args, device_);
    if (!launch.ok()) return Annotate(launch.status(), i, task.op);
    launch->programmatic = task.overlap || task.copies.a || task.copies.b;
    launches->gemms.push_back(*launch);
  }
  return launches;
}

bool CudaProgram::Overlaps(const Task& task, const RunContext& context) const {
  return task.overlap || (context.front != RunContext::Front::kOther && &task == &tasks_.front());
}

std::vector<std::byte*> CudaProgram::SlotsOf(const Task& task, SlotAddresses slots,
                                             std::byte* scratch) {
  if (!task.gated || !task.gated->product) return {slots.begin(), slots.end()};
  std::vector<std::byte*> all(slots.begin(), slots.begin() + task.gated->product->d.slot);
  all.push_back(scratch + task.gated->product_offset);
  return all;
}

absl::Status CudaProgram::LaunchGatedMatmul(const Task& task, const MatmulOp& op,
                                            const RunContext& context) const {
  if (task.gated->fused) {
    return QueueFused(context.launches.fused[task.gemm], Overlaps(task, context), context.stream);
  }
  const std::vector<std::byte*> all = SlotsOf(task, context.slots, context.scratch);
  const MatmulOp& product = *task.gated->product;
  absl::Status status = LaunchMatmul(task, product, all, context);
  if (!status.ok()) return status;
  GatedArgs gated = ArgsOf(GatedOf(*op.gate, product.d, op.d, op.d_scales), all);
  gated.programmatic = true;
  return ToStatus(Queue(gated, context.stream), "launch");
}

absl::Status CudaProgram::LaunchMatmul(const Task& task, const MatmulOp& op, SlotAddresses slots,
                                       const RunContext& context) const {
  AnyGemmArgs args = ArgsOf(op, slots);
  if (!task.variant) {
    args.programmatic = Overlaps(task, context);
    return ToStatus(task.other(args, context.stream), "launch");
  }
  bool overlap = Overlaps(task, context);
  for (auto copy :
       {CopyOfA(args, task.copies, context.scratch), CopyOfB(args, task.copies, context.scratch)}) {
    if (!copy) continue;
    copy->programmatic = overlap;
    const cudaError_t code = LaunchScaleLayout(*copy, context.stream);
    if (code != cudaSuccess) return ToStatus(code, "copying scales");
    overlap = true;
  }
  const GemmLaunch& planned = context.launches.gemms[task.gemm];
  absl::Status status;
  if (overlap && !planned.programmatic) {  // the first op, behind another program's kernel
    GemmLaunch behind = planned;
    behind.programmatic = true;
    status = Launch(*task.variant, behind, context.stream);
  } else {
    status = Launch(*task.variant, planned, context.stream);
  }
  std::optional<ActivateArgs> activate = ActivationOf(args);
  if (!status.ok() || !activate) return status;
  activate->programmatic = true;
  return ToStatus(LaunchActivate(*activate, context.stream), "activation");
}

absl::Status CudaProgram::LaunchMove(size_t index, const RunContext& context) const {
  const Task& task = tasks_[index];
  if (task.io_bytes == 0) return absl::OkStatus();
  const TensorRef& tensor = *Moved(task.op);
  const bool in = std::holds_alternative<WriteOp>(task.op);
  std::byte* host = context.io + task.io_offset;
  if (const auto* read = std::get_if<ReadOp>(&task.op);
      read != nullptr && !context.outputs.empty()) {
    const OutputSpan& output = context.outputs[read->output];
    if (output.device_writes) host = output.data();
  }
  std::byte* const device = context.slots[tensor.slot] + tensor.offset_bytes;
  if (task.by_engine && IsOnDevice(device)) {
    return ToStatus(
        cudaMemcpyAsync(in ? device : host, in ? host : device, static_cast<size_t>(task.io_bytes),
                        in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, context.stream),
        "cudaMemcpyAsync");
  }
  ConvertArgs args =
      in ? FromDense(host, tensor, context.slots) : ToDense(tensor, host, context.slots);
  args.programmatic = Overlaps(task, context);
  args.independent = context.IsIndependent(index);
  return ToStatus(Queue(args, context.stream), "moving inline bytes");
}

absl::Status CudaProgram::LaunchCopy(size_t index, const CopyOp& op,
                                     const RunContext& context) const {
  const Task& task = tasks_[index];
  ConvertArgs args = ArgsOf(op, context.slots);
  // The copy engine takes what goes over PCIe, or over NVLink beside other kernels: a copy within
  // the host is made by the calling thread, and one within the device is quicker by a kernel.
  if (task.by_engine && HomeOf(args.src) != HomeOf(args.dst)) {
    return ToStatus(cudaMemcpyAsync(args.dst, args.src, static_cast<size_t>(DenseBytes(op.dst)),
                                    cudaMemcpyDefault, context.stream),
                    "cudaMemcpyAsync");
  }
  args.programmatic = Overlaps(task, context);
  args.independent = context.IsIndependent(index);
  return ToStatus(Queue(args, context.stream), "launch");
}

absl::Status CudaProgram::LaunchStep(size_t index, const RunContext& context) const {
  const Task& task = tasks_[index];
  const absl::Status status = std::visit(
      [&]<class T>(const T& op) {
        if constexpr (std::is_same_v<T, MatmulOp>) {
          return op.gate ? LaunchGatedMatmul(task, op, context)
                         : LaunchMatmul(task, op, context.slots, context);
        } else if constexpr (std::is_same_v<T, WriteOp> || std::is_same_v<T, ReadOp>) {
          return LaunchMove(index, context);
        } else if constexpr (std::is_same_v<T, CopyOp>) {
          return LaunchCopy(index, op, context);
        } else if constexpr (std::is_same_v<T, GroupedMatmulOp>) {
          return QueueGrouped(context.launches.grouped[task.gemm], FaultAt(task, context),
                              task.overlap, context.stream);
        } else if constexpr (std::is_same_v<T, RouteOp> || std::is_same_v<T, CombineOp>) {
          auto args = ArgsOf(op, context.slots);
          args.programmatic = task.overlap;
          args.fault = FaultAt(task, context);
          if constexpr (std::is_same_v<T, RouteOp>) {
            args.counts = reinterpret_cast<int32_t*>(context.scratch);
          }
          return ToStatus(Queue(args, context.stream), "launch");
        } else {
          auto args = ArgsOf(op, context.slots);
          args.programmatic = Overlaps(task, context);
          args.independent = context.IsIndependent(index);
          if constexpr (std::is_same_v<T, QuantizeOp>) {
            if (op.rows) args.fault = FaultAt(task, context);
          }
          return ToStatus(Queue(args, context.stream), "launch");
        }
      },
      task.op);
  return status.ok() ? status : Annotate(status, index, task.op);
}

}  // namespace gemmd::kernels::cuda
