#include "tests/kernels/contract/backend_executor.h"

#include <algorithm>
#include <utility>

#include "absl/synchronization/notification.h"

namespace gemmd::kernels::contract {
namespace {

// By slot: whether it may lie on another device than its ops run on. So may what Copy ops read, and
// what matmuls write, as long as nothing else names it.
std::vector<bool> MayLieFar(absl::Span<const Op> ops, size_t slots) {
  std::vector<bool> far(slots, false);
  std::vector<bool> near(slots, false);
  for (const Op& op : ops) {
    ForEachTensor(op, [&](const TensorRef& tensor, Access access) {
      const bool reaches = access == Access::kRead ? std::holds_alternative<CopyOp>(op)
                                                   : std::holds_alternative<MatmulOp>(op);
      (reaches ? far : near)[tensor.slot] = true;
    });
  }
  for (size_t i = 0; i < slots; ++i) far[i] = far[i] && !near[i];
  return far;
}

// As gRPC receives it.
HostBytes InPieces(absl::Span<const std::byte> input) {
  HostBytes bytes(input.first(input.size() / 3));
  bytes.Append(input.subspan(input.size() / 3));
  return bytes;
}

class BackendExecutor final : public Executor {
 public:
  BackendExecutor(std::unique_ptr<Backend> backend, std::unique_ptr<Backend> far)
      : backend_(std::move(backend)), far_(std::move(far)), stream_(backend_->CreateStream({})) {}

  absl::StatusOr<Outcome> Run(absl::Span<const Op> ops, absl::Span<const Bytes> slots,
                              absl::Span<const Bytes> inputs,
                              absl::Span<const int64_t> output_bytes) override {
    std::vector<SlotInfo> infos;
    for (const Bytes& slot : slots) infos.push_back({static_cast<int64_t>(slot.size())});
    std::vector<int64_t> input_bytes;
    for (const Bytes& input : inputs) input_bytes.push_back(static_cast<int64_t>(input.size()));
    absl::Status status = ValidateOps(ops, infos, {input_bytes, output_bytes});
    if (!status.ok()) return status;
    auto program = backend_->Compile(ops);
    if (!program.ok()) return program.status();
    if (far_ != nullptr) status = backend_->CanReach(*far_);
    if (!status.ok()) return status;
    const std::vector<bool> far = MayLieFar(ops, slots.size());

    Outcome outcome;
    Bindings bindings;
    std::vector<std::unique_ptr<Memory>> memories;
    for (const Bytes& slot : slots) {
      Backend& home = far_ != nullptr && far[memories.size()] ? *far_ : *backend_;
      auto memory = home.Allocate(std::max<int64_t>(slot.size(), 1), MemoryKind::kDevice);
      if (!memory.ok()) return memory.status();
      status = (*memory)->CopyIn(0, slot);
      if (!status.ok()) return status;
      bindings.slots.push_back((*memory)->address());
      memories.push_back(*std::move(memory));
    }
    for (const Bytes& input : inputs) bindings.inputs.push_back(InPieces(input));
    std::vector<std::unique_ptr<HostMemory>> outputs;
    for (int64_t bytes : output_bytes) {
      outputs.push_back(backend_->AllocateOutput(bytes));
      std::fill_n(outputs.back()->span().data(), bytes, std::byte{0xa5});
      bindings.outputs.push_back(outputs.back()->span());
    }

    absl::Notification done;
    stream_->Launch(*program, bindings, [&](LaunchResult result) {
      status = result.status;
      done.Notify();
    });
    done.WaitForNotification();
    if (!status.ok()) return status;
    for (const auto& output : outputs) {
      outcome.outputs.emplace_back(output->data(), output->data() + output->size());
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      outcome.slots.emplace_back(slots[i].size());
      status = memories[i]->CopyOut(0, absl::MakeSpan(outcome.slots.back()));
      if (!status.ok()) return status;
    }
    for (const Program::Step& step : (*program)->steps()) {
      outcome.kernels.emplace_back(step.choice.kernel);
    }
    return outcome;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> far_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<Executor> MakeBackendExecutor(std::unique_ptr<Backend> backend,
                                              std::unique_ptr<Backend> far) {
  return std::make_unique<BackendExecutor>(std::move(backend), std::move(far));
}

}  // namespace gemmd::kernels::contract
