#include "kernels/cuda/run/cuda_program.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/stream_copy.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/operand_copies.h"
#include "kernels/cuda/memory/output_memory.h"
#include "kernels/cuda/memory/returned.h"
#include "kernels/cuda/ops/op_cost.h"
#include "kernels/cuda/run/program_op.h"
#include "kernels/grouping.h"
#include "kernels/op_fields.h"

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
// Mean estimate of an op from which each is timed. That takes 3 us, a seventieth of it: two event
// records, and the start of a kernel, which is not under the end of the one in front any more.
constexpr double kTimedOpSeconds = 200e-6;
// Shapes that a program tells of; a model's layers have some five, with few numbers of rows.
constexpr size_t kMostTunable = 64;

// Whether the op's first kernel waits for what is in front of it, whatever that touches: it has no
// argument to say that it need not.
bool WaitsFirst(const Op& op) {
  if (Moved(op) != nullptr) return false;
  return std::visit(
      [](const auto& kind) {
        return !requires { ArgsOf(kind, SlotAddresses()).independent; };
      },
      op);
}

}  // namespace

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
  if (!op.kernel.empty() || op.deterministic || op.a.values.dtype != DType::kE4M3 ||
      op.b.values.dtype != DType::kE4M3) {
    return;
  }
  MatmulProblem problem = ProblemOf(op);
  if (op.gate) problem = ProductOf(problem);
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
  const auto* columns = std::get_if<KGroupedMatmulOp>(&op);
  const absl::StatusOr<KernelChoice> choice =
      matmul != nullptr    ? ChooseMatmul(*matmul, kernels, task)
      : grouped != nullptr ? ChooseGrouped(*grouped, kernels, task)
      : columns != nullptr ? ChooseKGrouped(*columns, kernels, task)
                           : ChooseOther(op, kernels);
  if (!choice.ok()) return Annotate(choice.status(), tasks_.size() - 1, op);
  if (matmul != nullptr && task.member && kernels.matmul.tunable(*task.member) &&
      LiesAsMeasured(ProblemOf(*matmul))) {
    AddTunable(*matmul, choice->reason);
  }
  absl::StatusOr<std::vector<Touched>> touches = TouchesOf(op);
  if (!touches.ok()) return Annotate(touches.status(), tasks_.size() - 1, op);
  touches_.push_back({*std::move(touches)});
  AddNeeds(task);
  by_engine_ += task.by_engine;
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
  program->pool_ = &kernels.matmul;
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
  return {.program = serial_,
          .addresses = AddressesOf(slots, scratch),
          .returns = by_engine_ > 0 ? MemoryReturns().load(std::memory_order_relaxed) : 0};
}

}  // namespace gemmd::kernels::cuda
