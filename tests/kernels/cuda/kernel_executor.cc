#include "tests/kernels/cuda/kernel_executor.h"

#include <cuda_runtime_api.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/cpu/ops/run_op.h"
#include "kernels/cuda/args/op_args.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::Bytes;
using contract::Outcome;

absl::Status Validate(absl::Span<const Op> ops, absl::Span<const Bytes> slots,
                      absl::Span<const Bytes> inputs, absl::Span<const int64_t> output_bytes) {
  std::vector<SlotInfo> infos;
  for (const Bytes& slot : slots) infos.push_back({static_cast<int64_t>(slot.size())});
  std::vector<int64_t> input_bytes;
  for (const Bytes& input : inputs) input_bytes.push_back(static_cast<int64_t>(input.size()));
  return ValidateOps(ops, infos, {input_bytes, output_bytes});
}

class KernelExecutor final : public contract::Executor {
 public:
  explicit KernelExecutor(bool programmatic) : programmatic_(programmatic) {}

  absl::StatusOr<Outcome> Run(absl::Span<const Op> ops, absl::Span<const Bytes> slots,
                              absl::Span<const Bytes> inputs,
                              absl::Span<const int64_t> output_bytes) override {
    absl::Status status = Validate(ops, slots, inputs, output_bytes);
    if (!status.ok()) return status;
    std::vector<DeviceBuffer> memories, staged_inputs, staged_outputs;
    std::vector<std::byte*> addresses;
    for (const Bytes& slot : slots) {
      memories.emplace_back(slot);
      addresses.push_back(memories.back().data());
    }
    for (const Bytes& input : inputs) staged_inputs.emplace_back(input);
    for (int64_t bytes : output_bytes) staged_outputs.emplace_back(bytes);

    Outcome outcome;
    for (const Op& op : ops) {
      const auto* matmul = std::get_if<MatmulOp>(&op);
      if (matmul != nullptr && !matmul->kernel.empty() && matmul->kernel != kAnyGemmName) {
        return absl::NotFoundError(absl::StrCat("there is no kernel ", matmul->kernel));
      }
      const cudaError_t error = std::visit(
          [&](const auto& x) { return Launch(x, addresses, staged_inputs, staged_outputs); }, op);
      if (error != cudaSuccess) {
        return absl::InternalError(
            absl::StrCat("op ", outcome.kernels.size(), ": ", cudaGetErrorString(error)));
      }
      outcome.kernels.push_back(matmul != nullptr ? kAnyGemmName : "plain");
    }
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) return absl::InternalError(cudaGetErrorString(error));
    for (const DeviceBuffer& memory : memories) outcome.slots.push_back(memory.Download());
    for (const DeviceBuffer& output : staged_outputs) outcome.outputs.push_back(output.Download());
    return outcome;
  }

 private:
  template <class T>
  cudaError_t Launch(const T& op, SlotAddresses slots, const std::vector<DeviceBuffer>& inputs,
                     const std::vector<DeviceBuffer>& outputs) const {
    if constexpr (std::is_same_v<T, WriteOp>) {
      return Go(FromDense(inputs[op.input].data(), op.dst, slots));
    } else if constexpr (std::is_same_v<T, ReadOp>) {
      return Go(ToDense(op.src, outputs[op.output].data(), slots));
    } else if constexpr (std::is_same_v<T, MatmulOp> ||
                         requires { ArgsOf(op, slots).independent; }) {
      return Go(ArgsOf(op, slots));
    } else {
      return cudaErrorNotSupported;  // several kernels each, with scratch memory: the backend's
    }
  }

  template <class Args>
  cudaError_t Go(Args args) const {
    args.programmatic = programmatic_;
    return cuda::Launch(args, nullptr);
  }

  bool programmatic_;
};

class CpuExecutor final : public contract::Executor {
 public:
  absl::StatusOr<Outcome> Run(absl::Span<const Op> ops, absl::Span<const Bytes> slots,
                              absl::Span<const Bytes> inputs,
                              absl::Span<const int64_t> output_bytes) override {
    absl::Status status = Validate(ops, slots, inputs, output_bytes);
    if (!status.ok()) return status;
    Outcome outcome;
    outcome.slots.assign(slots.begin(), slots.end());
    Bindings bindings;
    for (Bytes& slot : outcome.slots) bindings.slots.push_back(slot.data());
    for (const Op& op : ops) {
      if (const auto* quantize = std::get_if<QuantizeOp>(&op)) {
        cpu::RunOp(*quantize, {bindings, workers_, scratch_});
      } else if (const auto* convert = std::get_if<ConvertOp>(&op)) {
        cpu::RunOp(*convert, {bindings, workers_, scratch_});
      } else if (const auto* fill = std::get_if<FillOp>(&op)) {
        cpu::RunOp(*fill, {bindings, workers_, scratch_});
      } else {
        return absl::UnimplementedError("this executor quantizes, converts and fills only");
      }
      outcome.kernels.emplace_back("cpu");
    }
    return outcome;
  }

 private:
  cpu::Workers workers_{2};
  cpu::Scratch scratch_;
};

}  // namespace

std::unique_ptr<contract::Executor> MakeKernelExecutor(bool programmatic) {
  return std::make_unique<KernelExecutor>(programmatic);
}

std::unique_ptr<contract::Executor> MakeCpuExecutor() { return std::make_unique<CpuExecutor>(); }

}  // namespace gemmd::kernels::cuda
