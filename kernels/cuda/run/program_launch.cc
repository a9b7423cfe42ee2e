// A program's launches: made for the memory that they are for, and queued op by op.

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/matmul/placed_args.h"
#include "kernels/cuda/memory/home.h"
#include "kernels/cuda/run/cuda_program.h"
#include "kernels/cuda/run/program_op.h"
#include "kernels/op_fields.h"

namespace gemmd::kernels::cuda {
namespace {

bool IsOnDevice(const void* address) { return HomeOf(address) != kOnHost; }

}  // namespace

DataFault* CudaProgram::FaultAt(const Task& task, const RunContext& context) const {
  return reinterpret_cast<DataFault*>(context.io + task.fault_offset);
}

absl::StatusOr<PreparedLaunches> CudaProgram::Prepare(SlotAddresses slots, std::byte* scratch,
                                                      PeerSends* sends, cudaStream_t stream) const {
  const int prepared = matmuls_ + grouped_ + k_grouped_;
  if (prepared == 0 && !capturable()) {
    static const auto& none = *new std::shared_ptr<const Launches>(new Launches);
    return PreparedLaunches{none};
  }
  Key key = AddressesOf(slots, scratch);
  key.push_back(sends == nullptr ? nullptr : sends->room());
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = remembered_.find(key); found != remembered_.end()) {
      return PreparedLaunches{found->second, /*again=*/true};
    }
  }
  const std::vector<bool> far = StoreFar(slots);
  const int64_t piece = sends == nullptr ? 0 : LargestPiece(far);
  // Without room for it kernels store there.
  if (piece > 0 && !sends->Grow(piece, stream).ok()) sends = nullptr;
  key.back() = sends == nullptr ? nullptr : sends->room();
  auto launches = MakeLaunches(slots, scratch, far, piece > 0 ? sends : nullptr);
  if (!launches.ok()) return launches.status();
  absl::MutexLock lock(&mutex_);
  if (remembered_.size() >= kMaxRemembered) remembered_.clear();
  remembered_.insert_or_assign(std::move(key), *launches);
  return PreparedLaunches{*std::move(launches)};
}

absl::StatusOr<std::shared_ptr<const Launches>> CudaProgram::MakeLaunches(
    SlotAddresses slots, std::byte* scratch, const std::vector<bool>& far,
    const PeerSends* sends) const {
  auto launches = std::make_shared<Launches>();
  launches->independent = IndependentOps(touches_, slots);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    launches->dispatched.push_back(MayDispatch(i, slots));
  }
  launches->stores_far = far;
  launches->matmuls.reserve(matmuls_);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const Task& task = tasks_[i];
    if (task.grouped) {
      auto grouped = PrepareGrouped(std::get<GroupedMatmulOp>(task.op), *task.grouped, slots,
                                    scratch, device_);
      if (!grouped.ok()) return Annotate(grouped.status(), i, task.op);
      const auto& op = std::get<GroupedMatmulOp>(task.op);
      const bool alone = !grouped->directory && grouped->tables.empty() && !grouped->copy;
      if (grouped->block_scaled && alone) {
        const TensorRef& bias = op.bias ? *op.bias : op.groups;
        grouped->block_scaled->weights_first =
            WereThereBefore(i, *launches, {&op.groups, &op.b.values, &*op.b.scales, &bias}, slots);
      }
      launches->grouped.push_back(*std::move(grouped));
    }
    if (task.k_grouped) {
      auto grouped = PrepareKGrouped(std::get<KGroupedMatmulOp>(task.op), *task.k_grouped, slots,
                                     scratch, device_);
      if (!grouped.ok()) return Annotate(grouped.status(), i, task.op);
      launches->k_grouped.push_back(*std::move(grouped));
    }
    const auto* const combine = std::get_if<CombineOp>(&task.op);
    launches->numbers_first.push_back(
        combine != nullptr &&
        WereThereBefore(i, *launches, {&combine->positions, &combine->weights}, slots));
    if (!task.member) continue;
    if (sends != nullptr && !far.empty() && far[i]) {
      if (absl::Status added = AddPieces(i, slots, scratch, *sends, *launches); !added.ok()) {
        return Annotate(added, i, task.op);
      }
    }
    if (launches->Sends(i)) {
      launches->matmuls.push_back(nullptr);
      launches->stores_far[i] = false;
      continue;
    }
    auto matmul =
        pool_->Prepare(*task.member, PlacedArgs(std::get<MatmulOp>(task.op), slots), scratch);
    if (!matmul.ok()) return Annotate(matmul.status(), i, task.op);
    launches->matmuls.push_back(*std::move(matmul));
  }
  return launches;
}

bool CudaProgram::Overlaps(const Task& task, const RunContext& context) const {
  return task.overlap || (context.front != RunContext::Front::kOther && &task == &tasks_.front());
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
  return ToStatus(Launch(args, context.stream), "moving inline bytes");
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
  return ToStatus(Launch(args, context.stream), "launch");
}

absl::Status CudaProgram::LaunchStep(size_t index, const RunContext& context) const {
  const Task& task = tasks_[index];
  if (absl::Status joined = JoinSends(index, context); !joined.ok()) {
    return Annotate(joined, index, task.op);
  }
  for (const size_t route : {index, index - 1}) {
    if (context.IsDispatched(route)) return LaunchDispatched(route, index, context);
  }
  const absl::Status status = std::visit(
      [&]<class T>(const T& op) {
        if constexpr (std::is_same_v<T, MatmulOp>) {
          if (context.launches.Sends(index)) return LaunchSent(index, context);
          return context.launches.matmuls[task.launch_index]->Launch(Overlaps(task, context),
                                                                     context.stream);
        } else if constexpr (std::is_same_v<T, WriteOp> || std::is_same_v<T, ReadOp>) {
          return LaunchMove(index, context);
        } else if constexpr (std::is_same_v<T, CopyOp>) {
          return LaunchCopy(index, op, context);
        } else if constexpr (std::is_same_v<T, GroupedMatmulOp>) {
          return QueueGrouped(context.launches.grouped[task.launch_index], FaultAt(task, context),
                              task.overlap, context.stream);
        } else if constexpr (std::is_same_v<T, KGroupedMatmulOp>) {
          return QueueKGrouped(context.launches.k_grouped[task.launch_index],
                               FaultAt(task, context), task.overlap, context.stream);
        } else {
          auto args = ArgsOf(op, context.slots);
          if constexpr (requires { args.independent; }) {
            args.programmatic = Overlaps(task, context);
            args.independent = context.IsIndependent(index);
          } else {
            args.programmatic = task.overlap;
          }
          if constexpr (requires { args.fault; }) {
            if (ReadsNumbers(task.op)) args.fault = FaultAt(task, context);
          }
          if constexpr (requires { args.counts; }) {
            args.counts = reinterpret_cast<int32_t*>(context.scratch);
          }
          if constexpr (requires { args.numbers_first; }) {
            args.numbers_first = index < context.launches.numbers_first.size() &&
                                 context.launches.numbers_first[index];
          }
          return ToStatus(Launch(args, context.stream), "launch");
        }
      },
      task.op);
  return status.ok() ? status : Annotate(status, index, task.op);
}

}  // namespace gemmd::kernels::cuda
