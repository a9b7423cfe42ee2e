#include "server/engine/armed/armed_region.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "prometheus/gauge.h"
#include "server/engine/reason.h"
#include "server/engine/scheduling/split_program.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr int kLine = GEMMD_ARMED_WORDS_PER_LINE;
// Lines that are looked at from the beginning, so that a ring of what was never armed is refused.
// More are as slots are armed.
constexpr size_t kFirstLines = 64;

// Fills what the plan writes and can hold NaN. Null when there is nothing of that kind.
absl::StatusOr<std::shared_ptr<const kernels::Program>> CompilePoison(const Plan& plan) {
  std::vector<kernels::Op> fills;
  for (const kernels::TensorRef& tensor : plan.float_outputs) {
    fills.push_back(
        kernels::FillOp{.dst = tensor, .value = std::numeric_limits<double>::quiet_NaN()});
  }
  if (fills.empty()) return nullptr;
  return plan.device->backend().Compile(fills);
}

absl::Status NotArmed(int slot) {
  return WithReason(
      absl::NotFoundError(absl::StrCat("slot ", slot,
                                       " is not armed; use one that ArmPlan answered and that was "
                                       "not disarmed since")),
      reason::kNotArmed);
}

}  // namespace

absl::StatusOr<std::shared_ptr<ArmedRegion>> ArmedRegion::Create(
    Session& session, Device& home, int slots, const ArmedEnvironment& environment) {
  slots = (slots + kLine - 1) / kLine * kLine;
  GEMMD_ASSIGN_OR_RETURN(auto host_bytes,
                         session.tenant().TakeHostBytes(gemmd_armed_size_bytes(slots)));
  GEMMD_ASSIGN_OR_RETURN(auto memory, ArmedMemory::Create(home.backend(), slots));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("eventfd: ", std::strerror(errno), "; raise the limit of open files"));
  }
  // Shared by its session, the poller and runs under way, of which any may be the last.
  return std::shared_ptr<ArmedRegion>(new ArmedRegion(
      session, home, std::move(memory), std::move(wake), std::move(host_bytes), environment));
}

ArmedRegion::ArmedRegion(Session& session, Device& home, std::unique_ptr<ArmedMemory> memory,
                         UniqueFd wake, Charge host_bytes, const ArmedEnvironment& environment)
    : session_(session.weak_from_this()),
      tenant_(session.tenant()),
      session_key_(session.key()),
      home_(home),
      host_bytes_(std::move(host_bytes)),
      memory_(std::move(memory)),
      wake_(std::move(wake)),
      environment_(environment),
      watch_(memory_->slots() / kLine),
      lines_(std::min(watch_.size(), kFirstLines)),
      slots_(lines_.load() * kLine) {
  for (auto& line : watch_) line.store((1u << kLine) - 1);
}

ArmedRegion::~ArmedRegion() = default;

void ArmedRegion::Watch(int slot, bool on) {
  const uint32_t bit = 1u << (slot % kLine);
  if (on) {
    watch_[slot / kLine].fetch_or(bit, std::memory_order_release);
  } else {
    watch_[slot / kLine].fetch_and(~bit, std::memory_order_release);
  }
}

int ArmedRegion::FreeSlot() {
  bool all_taken = true;  // those in front
  for (size_t slot = none_free_below_; slot < slots_.size(); ++slot) {
    const bool taken = slots_[slot].info.has_value();
    if (!taken && slots_[slot].unanswered == 0) return static_cast<int>(slot);
    all_taken = all_taken && taken;  // else it is free once its runs are answered
    if (all_taken) none_free_below_ = static_cast<int>(slot) + 1;
  }
  const size_t line = lines_.load();
  if (line == watch_.size()) return -1;
  slots_.resize((line + 1) * kLine);
  lines_.store(line + 1, std::memory_order_release);
  return static_cast<int>(line) * kLine;
}

void ArmedRegion::Empty(Slot& slot) {
  for (const Handle& handle : slot.handles) {
    const auto count = named_.find(handle);
    if (--count->second == 0) named_.erase(count);
  }
  slot.handles.clear();
  none_free_below_ = std::min(none_free_below_, slot.info->slot);
  slot.info.reset();
  slot.refusal = absl::OkStatus();
  slot.charge.Release();
  environment_.metrics.slots.Decrement();
}

absl::StatusOr<std::shared_ptr<ArmedRegion::Program>> ArmedRegion::Prepare(
    RunRequest request, const ArmOptions& options) {
  if (!request.output_bytes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan has ", request.output_bytes.size(),
        " Read ops, whose results travel in replies, and an armed run has none; Copy into a "
        "HOST_SHARED buffer instead"));
  }
  if (request.split != nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        "the plan runs on ", request.split->DeviceNames(),
        ", and an armed plan on one device; run it by RunPlan, or arm a plan of each device"));
  }
  GEMMD_ASSIGN_OR_RETURN(auto poison, CompilePoison(*request.plan));
  auto program = std::make_shared<Program>();
  program->plan = std::move(request.plan);
  program->buffers = std::move(request.buffers);
  program->peers = std::move(request.peers);
  program->poison = std::move(poison);
  program->options = options;
  return program;
}

absl::StatusOr<ArmedRegion::Armed> ArmedRegion::Arm(SessionUse use, const Handle& plan_id,
                                                    std::vector<Rebinding> rebind,
                                                    const ArmOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(auto plan, use->FindPlan(plan_id));
  Session& session = *use;
  GEMMD_ASSIGN_OR_RETURN(auto named, HandlesOf(*plan, rebind));
  GEMMD_ASSIGN_OR_RETURN(auto request, BindPlan(std::move(use), plan, rebind, {}));
  const SessionUse held = std::move(request.use);
  GEMMD_ASSIGN_OR_RETURN(auto program, Prepare(std::move(request), options));
  GEMMD_ASSIGN_OR_RETURN(auto charge, session.tenant().TakeArmed());
  SlotInfo info{
      .plan_id = plan_id, .label = plan->label, .device = plan->device->name(), .options = options};
  std::vector<Handle> handles;
  for (const Handle* handle : named) handles.push_back(*handle);
  handles.push_back(plan_id);
  GEMMD_ASSIGN_OR_RETURN(auto slot,
                         Place(program, std::move(info), std::move(charge), std::move(handles)));
  // Deletions tell of themselves from here on. What was deleted before that is not there now.
  absl::Status there = session.FindPlan(plan_id).status();
  there.Update(session.FindBuffers(named).status);
  if (!there.ok()) {
    Disarm({slot}).IgnoreError();  // unless the client has already
    return there;
  }
  return Armed{slot, std::move(plan), program->done_word != nullptr};
}

absl::StatusOr<int> ArmedRegion::Place(std::shared_ptr<Program> program, SlotInfo info,
                                       Charge charge, std::vector<Handle> handles) {
  // A stream writes to memory that its own backend, or another of the same driver, has registered.
  Device& device = *program->plan->device;
  const bool by_stream =
      device.backend().signals() && (&device == &home_ || home_.backend().info().gpu_ordinal >= 0);
  absl::MutexLock lock(&mutex_);
  if (ended_) {
    return WithReason(absl::NotFoundError("the session has ended; open a new one"),
                      reason::kSessionGone);
  }
  const int slot = FreeSlot();
  if (slot < 0) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "all ", slots(),
                          " slots of the session's region are taken; disarm plans, or ask "
                          "for more slots in the session's first GetArmedRegion")),
                      reason::kArmedLimit);
  }
  if (by_stream) program->done_word = memory_->DoneOnDevice(slot);
  memory_->Reset(slot);
  info.slot = slot;
  if (info.options.rung_by_stream) stream_slots_.fetch_add(1, std::memory_order_relaxed);
  for (const Handle& handle : handles) ++named_[handle];
  slots_[slot] = Slot{.program = std::move(program),
                      .info = std::move(info),
                      .handles = std::move(handles),
                      .charge = std::move(charge)};
  environment_.metrics.slots.Increment();
  // A poller that sleeps now and then looks at slots that streams ring has to begin with that.
  environment_.waker.Wake();
  return slot;
}

absl::Status ArmedRegion::Disarm(const std::vector<int>& slots) {
  std::vector<std::shared_ptr<const Program>> dropped;  // destroyed without the lock
  std::vector<std::pair<Lane*, std::shared_ptr<Job>>> queued;
  {
    absl::MutexLock lock(&mutex_);
    for (const int slot : slots) {
      if (slot < 0 || slot >= static_cast<int>(slots_.size()) || !slots_[slot].info.has_value()) {
        return NotArmed(slot);
      }
    }
    for (const int slot : slots) {
      Slot& state = slots_[slot];
      if (!state.info.has_value()) continue;  // named twice
      for (const auto& job : state.jobs) {
        if (state.program != nullptr)
          queued.emplace_back(&state.program->plan->device->lane(), job);
      }
      if (state.info->options.rung_by_stream) stream_slots_.fetch_sub(1, std::memory_order_relaxed);
      dropped.push_back(std::move(state.program));
      state.program = nullptr;
      Empty(state);
    }
  }
  const absl::Status status =
      WithReason(absl::CancelledError("the plan was disarmed before this run started; nothing ran"),
                 reason::kCancelled);
  for (const auto& [lane, job] : queued) lane->Cancel(job, status);
  return absl::OkStatus();
}

std::vector<ArmedRegion::SlotInfo> ArmedRegion::List() const {
  std::vector<SlotInfo> listed;
  absl::MutexLock lock(&mutex_);
  for (const Slot& slot : slots_) {
    if (!slot.info.has_value()) continue;
    listed.push_back(*slot.info);
    listed.back().running = slot.unanswered > 0;
    if (!slot.refusal.ok()) listed.back().last = slot.refusal;
  }
  return listed;
}

bool ArmedRegion::Names(absl::Span<const Handle> handles) const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(handles.begin(), handles.end(),
                     [&](const Handle& handle) { return named_.contains(handle); });
}

template <typename Predicate>
void ArmedRegion::Forget(const absl::Status& status, Predicate uses) {
  std::vector<std::shared_ptr<const Program>> dropped;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  for (Slot& slot : slots_) {
    if (slot.program == nullptr || !uses(slot)) continue;
    dropped.push_back(std::move(slot.program));
    slot.program = nullptr;
    slot.refusal = status;
  }
}

void ArmedRegion::ForgetPlan(const Handle& plan_id) {
  if (!Names({plan_id})) return;
  Forget(WithReason(absl::NotFoundError(absl::StrCat(
                        "plan ", Redacted(plan_id),
                        "... of this slot was deleted; disarm the slot and arm another plan")),
                    reason::kPlanGone),
         [&](const Slot& slot) { return slot.info->plan_id == plan_id; });
}

void ArmedRegion::ForgetBuffers(absl::Span<const Handle> handles) {
  if (!Names(handles)) return;
  const absl::flat_hash_set<Handle> gone(handles.begin(), handles.end());
  Forget(WithReason(absl::NotFoundError("a buffer that this slot's plan is bound to was deleted; "
                                        "disarm the slot and arm the plan with another"),
                    reason::kBufferGone),
         [&](const Slot& slot) {
           return std::any_of(slot.handles.begin(), slot.handles.end(),
                              [&](const Handle& handle) { return gone.contains(handle); });
         });
}

void ArmedRegion::End() {
  std::vector<std::shared_ptr<const Program>> dropped;  // destroyed without the lock
  const absl::Status gone = WithReason(absl::NotFoundError("the session has ended; open a new one"),
                                       reason::kSessionGone);
  const absl::Time now = environment_.clock.Now();
  absl::MutexLock lock(&mutex_);
  if (ended_) return;
  ended_ = true;
  memory_->SetEnded();
  for (auto& line : watch_) line.store(0, std::memory_order_release);
  for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) {
    Slot& state = slots_[slot];
    if (state.program != nullptr) dropped.push_back(std::exchange(state.program, nullptr));
    if (state.info.has_value()) Empty(state);
    state.refusal = gone;
    if (memory_->TakeGate(slot) == GEMMD_ARMED_IDLE) continue;
    EndedRun failed{.run = {.slot = slot, .taken = now, .refused = true},
                    .result = {.status = gone}};
    if (++state.unanswered == 1) {
      Answer(failed);
      memory_->WakeWaiters(slot);
    } else if (!state.deferred.has_value()) {
      state.deferred = std::move(failed);
    } else {
      --state.unanswered;
    }
  }
  stream_slots_.store(0, std::memory_order_relaxed);
  gone_.store(true, std::memory_order_relaxed);
  environment_.waker.Wake();
}

}  // namespace gemmd::server
