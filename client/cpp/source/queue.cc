#include "client/cpp/queue.h"

#include <utility>

#include "client/cpp/internal/calls/plan_state.h"
#include "client/cpp/internal/calls/program.h"
#include "client/cpp/internal/calls/queue_core.h"
#include "client/cpp/internal/connect/forked.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

int64_t SizeOf(const std::vector<absl::string_view>& inputs) {
  int64_t bytes = 0;
  for (absl::string_view input : inputs) bytes += static_cast<int64_t>(input.size());
  return bytes;
}

absl::Status Usable(const QueueCore* core) {
  return core ? CheckForked() : absl::FailedPreconditionError("this Queue object holds none");
}

absl::StatusOr<std::shared_ptr<Ticket::Slot>> SubmitOps(QueueCore* core, const OpList& ops,
                                                        ExecuteCallback done,
                                                        const SubmitOptions& options) {
  GEMMD_RETURN_IF_ERROR(Usable(core));
  if (!ops.status().ok()) return ops.status();
  auto slot = std::make_shared<Ticket::Slot>();
  slot->inline_bytes = ops.inline_bytes();
  slot->callback = std::move(done);
  GEMMD_RETURN_IF_ERROR(core->Submit(ops.wire(), options, slot));
  return slot;
}

absl::StatusOr<std::shared_ptr<Ticket::Slot>> SubmitPlan(QueueCore* core, const Plan& plan,
                                                         const PlanArgs& args, ExecuteCallback done,
                                                         const SubmitOptions& options) {
  GEMMD_RETURN_IF_ERROR(Usable(core));
  auto slot = std::make_shared<Ticket::Slot>();
  slot->inline_bytes = SizeOf(args.inputs);
  slot->callback = std::move(done);
  const std::string run = EncodePlanRun(v1::Batch::kPlanFieldNumber, plan.id(), args);
  GEMMD_RETURN_IF_ERROR(core->Submit(run, options, slot));
  return slot;
}

}  // namespace

Ticket::Ticket() = default;
Ticket::~Ticket() = default;
Ticket::Ticket(Ticket&&) noexcept = default;
Ticket& Ticket::operator=(Ticket&&) noexcept = default;
Ticket::Ticket(std::shared_ptr<Slot> slot) : slot_(std::move(slot)) {}

int64_t Ticket::sequence() const { return slot_ ? slot_->sequence : 0; }

bool Ticket::done() const {
  if (!slot_) return false;
  absl::MutexLock lock(&slot_->mu);
  return slot_->done;
}

absl::StatusOr<Result> Ticket::Wait(absl::Duration timeout) {
  if (!slot_) return absl::FailedPreconditionError("this Ticket object holds no batch");
  absl::MutexLock lock(&slot_->mu);
  if (!slot_->mu.AwaitWithTimeout(absl::Condition(&slot_->done), timeout)) {
    return absl::DeadlineExceededError("the batch is still in flight");
  }
  if (slot_->taken) return absl::FailedPreconditionError("the batch's result was taken before");
  slot_->taken = true;
  return std::move(slot_->result);
}

Queue::Queue() = default;
Queue::~Queue() {
  if (Forked()) (void)core_.release();  // the parent's
}
Queue::Queue(Queue&&) noexcept = default;
Queue& Queue::operator=(Queue&&) noexcept = default;
Queue::Queue(std::unique_ptr<QueueCore> core) : core_(std::move(core)) {}

absl::StatusOr<Ticket> Queue::Submit(const OpList& ops, const SubmitOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(std::shared_ptr<Ticket::Slot> slot,
                         SubmitOps(core_.get(), ops, nullptr, options));
  return Ticket(std::move(slot));
}

absl::StatusOr<Ticket> Queue::Submit(const Plan& plan, const PlanArgs& args,
                                     const SubmitOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(std::shared_ptr<Ticket::Slot> slot,
                         SubmitPlan(core_.get(), plan, args, nullptr, options));
  return Ticket(std::move(slot));
}

absl::Status Queue::Submit(const OpList& ops, ExecuteCallback done, const SubmitOptions& options) {
  return SubmitOps(core_.get(), ops, std::move(done), options).status();
}

absl::Status Queue::Submit(const Plan& plan, const PlanArgs& args, ExecuteCallback done,
                           const SubmitOptions& options) {
  return SubmitPlan(core_.get(), plan, args, std::move(done), options).status();
}

absl::Status Queue::Drain(absl::Duration timeout) {
  const absl::Status usable = Usable(core_.get());
  return usable.ok() ? core_->Drain(timeout) : usable;
}

absl::Status Queue::Close() {
  const absl::Status usable = Usable(core_.get());
  return usable.ok() ? core_->Close() : usable;
}

const v1::QueueOpened& Queue::opened() const {
  return core_ ? core_->opened() : v1::QueueOpened::default_instance();
}

int Queue::window_batches() const { return opened().window_batches(); }
int64_t Queue::window_bytes() const { return opened().window_bytes(); }
const std::string& Queue::device() const { return opened().device(); }

}  // namespace gemmd::client
