#include "server/engine/sessions/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/armed/armed_region.h"
#include "server/engine/reason.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

absl::Status NoBuffer(const Handle& handle) {
  return WithReason(
      absl::NotFoundError(absl::StrCat("buffer ", Redacted(handle),
                                       "... does not exist in this session; it was deleted, or it "
                                       "is another session's: publish and find it to share it")),
      reason::kBufferGone);
}

absl::Status NoPlan(const Handle& handle) {
  return WithReason(absl::NotFoundError(absl::StrCat("plan ", Redacted(handle),
                                                     "... does not exist in this session")),
                    reason::kPlanGone);
}

}  // namespace

std::string_view Name(EndCause cause) {
  switch (cause) {
    case EndCause::kClosed:
      return "closed";
    case EndCause::kExpired:
      return "expired";
    case EndCause::kCut:
      return "cut";
    case EndCause::kDrained:
      return "drained";
    case EndCause::kEvicted:
      return "evicted";
  }
  return "";
}

SessionUse& SessionUse::operator=(SessionUse&& other) noexcept {
  if (this != &other) {
    Release();
    session_ = std::move(other.session_);
  }
  return *this;
}

SessionUse::~SessionUse() { Release(); }

void SessionUse::Release() {
  if (session_ != nullptr) std::exchange(session_, nullptr)->ReleaseUse();
}

Session::Session(uint64_t key, const Handle& handle, Tenant& tenant, SessionOptions options,
                 Charge charge, absl::Time now)
    : key_(key),
      handle_(handle),
      name_(absl::StrCat("s-", key)),
      tenant_(tenant),
      options_(std::move(options)),
      created_(now),
      charge_(std::move(charge)),
      expiry_(now + options_.ttl) {}

absl::Status Session::Gone() const {
  return WithReason(absl::NotFoundError("the session does not exist or has ended; open a new one"),
                    reason::kSessionGone);
}

absl::StatusOr<SessionUse> Session::Use(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return Gone();
  // What a client sent before it died is read after its stream was cut: by the ttl, it would keep
  // the dead one's buffers for half a minute or an hour.
  if (!held_) expiry_ = std::max(expiry_, now + (cut_ ? options_.grace : options_.ttl));
  ++uses_;
  return SessionUse(shared_from_this());
}

absl::StatusOr<SessionUse> Session::UseForRing(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return Gone();
  if (!held_ && !cut_) expiry_ = std::max(expiry_, now + options_.ttl);
  ++uses_;
  ++queued_programs_;
  return SessionUse(shared_from_this());
}

absl::Time Session::expiry() const {
  absl::MutexLock lock(&mutex_);
  return held_ ? absl::InfiniteFuture() : expiry_;
}

absl::StatusOr<int64_t> Session::Hold(Holder holder) {
  Holder before;
  int64_t ticket = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return Gone();
    before = std::exchange(holder_, std::move(holder));
    held_ = true;
    cut_ = false;
    ticket = ++hold_ticket_;
  }
  if (before.replaced) before.replaced();
  return ticket;
}

void Session::Unhold(int64_t ticket, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (!held_ || ticket != hold_ticket_) return;
  held_ = false;
  cut_ = true;
  holder_ = Holder();
  expiry_ = now + options_.grace;
}

void Session::MoveTimes(absl::Duration by) {
  absl::MutexLock lock(&mutex_);
  expiry_ += by;
}

EndCause Session::ExpiryCause() const {
  absl::MutexLock lock(&mutex_);
  return cut_ ? EndCause::kCut : EndCause::kExpired;
}

absl::StatusOr<Handle> Session::AddBuffer(BufferRef ref, PublishedClaim claim) {
  Charge charge;
  if (ref.found) {
    GEMMD_ASSIGN_OR_RETURN(charge, tenant_.TakeBuffer());
  }
  const Handle handle = NewHandle();
  absl::MutexLock lock(&mutex_);
  if (ended_) return Gone();
  buffers_.emplace(handle,
                   BufferEntry{std::move(ref), next_order_++, std::move(charge), std::move(claim)});
  return handle;
}

void Session::KeepClaim(const Handle& handle, PublishedClaim claim) {
  PublishedClaim before;  // let go of after the lock
  absl::MutexLock lock(&mutex_);
  auto it = buffers_.find(handle);
  if (it != buffers_.end()) before = std::exchange(it->second.claim, std::move(claim));
}

absl::StatusOr<BufferRef> Session::FindBuffer(const Handle& handle) const {
  absl::MutexLock lock(&mutex_);
  auto it = buffers_.find(handle);
  if (it == buffers_.end()) return NoBuffer(handle);
  return it->second.ref;
}

Session::FoundBuffers Session::FindBuffers(absl::Span<const Handle* const> handles) {
  FoundBuffers found;
  found.refs.reserve(handles.size());
  absl::MutexLock lock(&mutex_);
  found.deletions = deletions_;
  for (const Handle* handle : handles) {
    auto it = buffers_.find(*handle);
    if (it == buffers_.end()) {
      found.status = NoBuffer(*handle);
      break;
    }
    it->second.bound = true;
    found.refs.push_back(it->second.ref);
  }
  return found;
}

absl::StatusOr<int64_t> Session::DeleteBuffers(absl::Span<const Handle> handles,
                                               std::shared_ptr<void> until_unmapped) {
  std::vector<BufferRef> freed;  // destroyed after the lock is let go
  std::vector<PublishedClaim> claims;
  RecentBindings::Forgotten forgotten;
  std::shared_ptr<ArmedRegion> armed;
  int64_t bytes = 0;
  {
    absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < handles.size(); ++i) {
      if (!buffers_.contains(handles[i])) return NoBuffer(handles[i]);
    }
    bool bound = false;
    for (const Handle& handle : handles) {
      auto it = buffers_.find(handle);
      if (it == buffers_.end()) continue;  // named twice
      bound |= it->second.bound;
      freed.push_back(std::move(it->second.ref));
      claims.push_back(std::move(it->second.claim));
      buffers_.erase(it);
    }
    ++deletions_;
    if (bound) forgotten = recent_.ForgetBuffers(handles);
    armed = armed_;
  }
  if (armed != nullptr) armed->ForgetBuffers(handles);
  forgotten.clear();  // before what else keeps the buffers is counted
  for (BufferRef& ref : freed) {
    if (ref.buffer.use_count() == 1) bytes += ref.buffer->spec().size_bytes;
    if (ref.buffer->spec().kind == kernels::MemoryKind::kDeviceImported) {
      ref.buffer->HoldUntilFreed(until_unmapped);
    }
  }
  return bytes;
}

std::vector<Session::NamedBuffer> Session::Buffers() const {
  std::vector<std::pair<uint64_t, NamedBuffer>> ordered;
  {
    absl::MutexLock lock(&mutex_);
    ordered.reserve(buffers_.size());
    for (const auto& [handle, entry] : buffers_) {
      ordered.emplace_back(entry.order, NamedBuffer{handle, entry.ref});
    }
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<NamedBuffer> buffers;
  buffers.reserve(ordered.size());
  for (auto& [order, buffer] : ordered) buffers.push_back(std::move(buffer));
  return buffers;
}

absl::StatusOr<Handle> Session::AddPlan(std::shared_ptr<const Plan> plan) {
  const Handle handle = NewHandle();
  absl::MutexLock lock(&mutex_);
  if (ended_) return Gone();
  plans_.emplace(handle, std::move(plan));
  return handle;
}

absl::StatusOr<std::shared_ptr<const Plan>> Session::FindPlan(const Handle& handle) const {
  absl::MutexLock lock(&mutex_);
  auto it = plans_.find(handle);
  if (it == plans_.end()) return NoPlan(handle);
  return it->second;
}

absl::Status Session::DeletePlan(const Handle& handle) {
  std::shared_ptr<const Plan> plan;  // destroyed after the lock is let go
  RecentBindings::Forgotten forgotten;
  std::shared_ptr<ArmedRegion> armed;
  {
    absl::MutexLock lock(&mutex_);
    auto it = plans_.find(handle);
    if (it == plans_.end()) return NoPlan(handle);
    plan = std::move(it->second);
    plans_.erase(it);
    ++deletions_;
    forgotten = recent_.ForgetPlan(plan);
    armed = armed_;
  }
  if (armed != nullptr) armed->ForgetPlan(handle);
  return absl::OkStatus();
}

std::shared_ptr<ArmedRegion> Session::armed() const {
  absl::MutexLock lock(&mutex_);
  return armed_;
}

absl::Status Session::SetArmed(std::shared_ptr<ArmedRegion> region) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return Gone();
  if (armed_ != nullptr) {
    return absl::FailedPreconditionError("the session has a region of armed plans already");
  }
  armed_ = std::move(region);
  return absl::OkStatus();
}

std::shared_ptr<const BoundBuffers> Session::FindBinding(const std::shared_ptr<const Plan>& plan,
                                                         absl::Span<const Rebinding> rebind) {
  absl::MutexLock lock(&mutex_);
  return recent_.Find(plan, rebind);
}

void Session::RememberBinding(RecentBindings::Entry entry, const FoundBuffers& found) {
  RecentBindings::Forgotten forgotten;  // destroyed after the lock is let go
  absl::MutexLock lock(&mutex_);
  if (deletions_ == found.deletions) forgotten = recent_.Add(std::move(entry));
}

void Session::ProgramAccepted() {
  absl::MutexLock lock(&mutex_);
  ++queued_programs_;
}

void Session::ProgramAnswered(double device_seconds) {
  absl::MutexLock lock(&mutex_);
  --queued_programs_;
  device_seconds_ += device_seconds;
}

Session::Stats Session::stats() const {
  absl::MutexLock lock(&mutex_);
  Stats stats{.created = created_,
              .expiry = expiry_,
              .held = held_,
              .buffers = static_cast<int64_t>(buffers_.size()),
              .plans = static_cast<int64_t>(plans_.size()),
              .queued_programs = queued_programs_,
              .device_seconds = device_seconds_};
  for (const auto& [handle, entry] : buffers_) {
    if (!entry.ref.found) stats.buffer_bytes += entry.ref.buffer->spec().size_bytes;
  }
  return stats;
}

bool Session::End(absl::AnyInvocable<void(Freed) &&> freed) {
  Holder holder;
  std::shared_ptr<ArmedRegion> armed;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return false;
    ended_ = true;
    ++uses_;  // ours: nothing is freed before armed plans have let go of it
    armed = std::exchange(armed_, nullptr);
    freed_ = std::move(freed);
    holder = std::exchange(holder_, Holder());
  }
  if (armed != nullptr) armed->End();
  if (holder.ended) holder.ended();
  ReleaseUse();
  return true;
}

void Session::ReleaseUse() {
  bool last = false;
  {
    absl::MutexLock lock(&mutex_);
    last = --uses_ == 0 && ended_;
  }
  if (last) FreeAll();
}

void Session::FreeAll() {
  decltype(buffers_) buffers;
  decltype(plans_) plans;
  decltype(freed_) freed;
  RecentBindings::Forgotten forgotten;
  {
    absl::MutexLock lock(&mutex_);
    forgotten = recent_.ForgetAll();
    buffers.swap(buffers_);
    plans.swap(plans_);
    freed.swap(freed_);
    charge_.Release();
  }
  forgotten.clear();  // before what else keeps the buffers is counted
  Freed total;
  for (auto& [handle, entry] : buffers) {
    if (entry.ref.buffer.use_count() == 1) {
      ++total.buffers;
      total.bytes += entry.ref.buffer->spec().size_bytes;
    }
  }
  buffers.clear();
  plans.clear();
  if (freed) std::move(freed)(total);
}

}  // namespace gemmd::server
