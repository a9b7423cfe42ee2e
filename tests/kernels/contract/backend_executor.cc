#include "tests/kernels/contract/backend_executor.h"

#include <algorithm>
#include <utility>

#include "absl/synchronization/notification.h"

namespace gemmd::kernels::contract {
namespace {

class BackendExecutor final : public Executor {
 public:
  explicit BackendExecutor(std::unique_ptr<Backend> backend)
      : backend_(std::move(backend)), stream_(backend_->CreateStream({})) {}

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

    Outcome outcome;
    Bindings bindings;
    std::vector<std::unique_ptr<Memory>> memories;
    for (const Bytes& slot : slots) {
      auto memory = backend_->Allocate(std::max<int64_t>(slot.size(), 1), MemoryKind::kDevice);
      if (!memory.ok()) return memory.status();
      status = (*memory)->CopyIn(0, slot);
      if (!status.ok()) return status;
      bindings.slots.push_back((*memory)->address());
      memories.push_back(*std::move(memory));
    }
    for (const Bytes& input : inputs) bindings.inputs.push_back(input);
    for (int64_t bytes : output_bytes) outcome.outputs.emplace_back(bytes);
    for (Bytes& output : outcome.outputs) bindings.outputs.push_back(absl::MakeSpan(output));

    absl::Notification done;
    stream_->Launch(*program, bindings, [&](LaunchResult result) {
      status = result.status;
      done.Notify();
    });
    done.WaitForNotification();
    if (!status.ok()) return status;
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
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<Executor> MakeBackendExecutor(std::unique_ptr<Backend> backend) {
  return std::make_unique<BackendExecutor>(std::move(backend));
}

}  // namespace gemmd::kernels::contract
