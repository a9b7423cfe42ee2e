// What an op's kernels may do because of the op in front of it: a quantisation that gathers by a
// route's rows goes with it (experts/dispatch.h), and a grouped matmul loads weights under its end.

#include <variant>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/run/cuda_program.h"
#include "kernels/cuda/run/program_op.h"

namespace gemmd::kernels::cuda {
namespace {

bool SameNumbers(const TensorRef& x, const TensorRef& y) {
  return x.slot == y.slot && x.offset_bytes == y.offset_bytes && x.shape == y.shape &&
         x.strides == y.strides;
}

}  // namespace

DispatchArgs CudaProgram::DispatchOf(size_t route, SlotAddresses slots) const {
  return {.route = ArgsOf(std::get<RouteOp>(tasks_[route].op), slots),
          .quantize = ArgsOf(std::get<QuantizeOp>(tasks_[route + 1].op), slots)};
}

bool CudaProgram::MayDispatch(size_t route, SlotAddresses slots) const {
  if (route + 1 >= tasks_.size()) return false;
  const auto* const op = std::get_if<RouteOp>(&tasks_[route].op);
  const auto* const quantize = std::get_if<QuantizeOp>(&tasks_[route + 1].op);
  if (op == nullptr || quantize == nullptr || !quantize->rows ||
      !SameNumbers(*quantize->rows, op->rows) || !Dispatches(DispatchOf(route, slots))) {
    return false;
  }
  // But for the rows neither has memory that the other one writes.
  OpTouches gathers;
  for (const Touched& touched : touches_[route + 1].all) {
    const bool is_rows = touched.slot == op->rows.slot && !touched.written &&
                         touched.bytes.begin == op->rows.offset_bytes;
    if (!is_rows) gathers.all.push_back(touched);
  }
  return !Conflict(touches_[route], gathers, slots);
}

// Ops that are timed one by one stay two kernels.
bool CudaProgram::RoutesInDispatch(const DispatchArgs& args) const {
  return !timed_ && args.quantize.rows <= kMostRoutedChoices;
}

absl::Status CudaProgram::LaunchDispatched(size_t route, size_t index,
                                           const RunContext& context) const {
  const Task& task = tasks_[index];
  DispatchArgs args = DispatchOf(route, context.slots);
  args.route.fault = FaultAt(tasks_[route], context);
  args.quantize.fault = FaultAt(tasks_[route + 1], context);
  args.routes = RoutesInDispatch(args);
  cudaError_t code = cudaSuccess;
  if (index == route && !args.routes) {
    args.route.counts = reinterpret_cast<int32_t*>(context.scratch);
    args.route.programmatic = task.overlap;
    code = LaunchRoute(args.route, context.stream);
  } else if ((index == route) == args.routes) {  // else it was launched with the route
    args.quantize.programmatic = task.overlap;
    code = LaunchDispatch(args, context.stream);
  }
  const absl::Status status = ToStatus(code, "launch");
  return status.ok() ? status : Annotate(status, index, task.op);
}

// The kernel in front lets this one start once it has waited for what is in front of itself, and so
// all of that is there. What it writes by itself is not.
bool CudaProgram::WereThereBefore(size_t index, const Launches& launches,
                                  absl::Span<const TensorRef* const> tensors,
                                  SlotAddresses slots) const {
  if (index == 0 || !tasks_[index].overlap || launches.independent[index - 1]) return false;
  const Task& front = tasks_[index - 1];
  const bool waits_before = std::holds_alternative<QuantizeOp>(front.op) ||
                            (front.grouped && launches.grouped[front.launch_index].block_scaled);
  if (!waits_before) return false;
  OpTouches reads;
  for (const TensorRef* tensor : tensors) {
    reads.all.push_back({tensor->slot, TouchedBytes(*tensor).value(), false});
  }
  const bool route_in_front = index > 1 && launches.dispatched[index - 2];
  return !Conflict(touches_[index - 1], reads, slots) &&
         !(route_in_front && Conflict(touches_[index - 2], reads, slots));
}

}  // namespace gemmd::kernels::cuda
