#include "client/cpp/plan_twins.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/plan_state.h"
#include "client/cpp/shared_run.h"
#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {
namespace {

absl::Status RoomBeside(int64_t twins) {
  if (twins < static_cast<int64_t>(PlanTwins::kMost)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      twins, " runs of the plan share memory already; wait for one, or let go of its result"));
}

}  // namespace

std::optional<PlanTwins::Place> PlanTwins::FreePlace(const SessionCore& session, int64_t bytes) {
  absl::MutexLock lock(&mu_);
  if (!off_.ok()) return std::nullopt;
  for (const Twin& twin : twins_) {
    auto block = session.inline_memory().TakeAt(twin.buffer, twin.at, bytes);
    if (block != nullptr) return Place{std::move(block), twin.plan};
  }
  return std::nullopt;
}

absl::Status PlanTwins::HasRoom(const SessionCore& session) {
  absl::MutexLock lock(&mu_);
  if (!off_.ok()) return off_;
  return RoomBeside(std::count_if(twins_.begin(), twins_.end(), [&](const Twin& twin) {
    return session.inline_memory().IsIn(twin.buffer);
  }));
}

absl::StatusOr<Handle> PlanTwins::For(const SessionCore& session, const InlineMemory::Block& block,
                                      const CallOptions& options) {
  absl::MutexLock lock(&mu_);
  if (!off_.ok()) return off_;
  for (const Twin& twin : twins_) {
    if (twin.at == block.offset_bytes() && twin.buffer == block.buffer()) return twin.plan;
  }
  DropAllBut(session, block.buffer());
  if (absl::Status room = RoomBeside(std::ssize(twins_)); !room.ok()) return room;
  const absl::StatusOr<v1::Plan> made =
      CreatePlanOf(session, MovedInto(ops_, block), {.label = label_, .call = options});
  absl::StatusOr<Handle> id =
      made.ok() ? Handle::FromBytes(made->plan_id()) : absl::StatusOr<Handle>(made.status());
  if (id.ok()) {
    twins_.push_back({block.buffer(), block.offset_bytes(), *id});
  } else if (!absl::IsUnavailable(id.status()) && !absl::IsDeadlineExceeded(id.status())) {
    off_ = id.status();
  }
  return id;
}

void PlanTwins::DropAllBut(const SessionCore& session, const Handle& buffer) {
  std::erase_if(twins_, [&](const Twin& twin) {
    if (twin.buffer == buffer) return false;
    session.reaper().DropPlan(twin.plan);
    return true;
  });
}

void PlanTwins::TurnOff(const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  off_ = why;
}

bool PlanTwins::Drop(const SessionCore& session) {
  absl::MutexLock lock(&mu_);
  const bool any = !twins_.empty();
  DropAllBut(session, Handle());
  return any;
}

void AllPlanTwins::Add(const std::shared_ptr<PlanTwins>& twins) {
  absl::MutexLock lock(&mu_);
  std::erase_if(all_, [](const std::weak_ptr<PlanTwins>& one) { return one.expired(); });
  all_.push_back(twins);
}

bool AllPlanTwins::Drop(const SessionCore& session) {
  absl::MutexLock lock(&mu_);
  bool any = false;
  for (const std::weak_ptr<PlanTwins>& one : all_) {
    if (const std::shared_ptr<PlanTwins> twins = one.lock()) any |= twins->Drop(session);
  }
  return any;
}

}  // namespace gemmd::client
