#include "server/engine/sessions/session_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "server/engine/observe/label.h"
#include "server/engine/reason.h"
#include "server/engine/sessions/planted_leak.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

absl::Status NoSession() {
  return WithReason(absl::NotFoundError("the session does not exist or has ended; open a new one"),
                    reason::kSessionGone);
}

absl::StatusOr<absl::Duration> Ttl(const SessionConfig& config,
                                   const std::optional<absl::Duration>& asked) {
  if (!asked) return config.default_ttl;
  if (*asked < config.min_ttl || *asked > config.max_ttl) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ttl=", absl::FormatDuration(*asked), " is outside ", absl::FormatDuration(config.min_ttl),
        " to ", absl::FormatDuration(config.max_ttl), "; ask for a ttl within"));
  }
  return *asked;
}

absl::StatusOr<absl::Duration> Grace(const SessionConfig& config, absl::Duration ttl,
                                     const std::optional<absl::Duration>& asked) {
  if (!asked) return std::min(config.default_grace, ttl);
  if (*asked < absl::ZeroDuration() || *asked > ttl) {
    return absl::InvalidArgumentError(absl::StrCat("grace=", absl::FormatDuration(*asked),
                                                   " is outside 0s to the ttl of ",
                                                   absl::FormatDuration(ttl)));
  }
  return *asked;
}

}  // namespace

SessionStore::SessionStore(const SessionConfig& config, const Clock& clock, Metrics& metrics,
                           Log& log, OnEnd on_end)
    : clock_(clock), metrics_(metrics), log_(log), on_end_(std::move(on_end)), config_(config) {}

SessionStore::~SessionStore() { EndAll(EndCause::kDrained); }

absl::StatusOr<std::shared_ptr<Session>> SessionStore::Open(Tenant& tenant, OpenOptions options) {
  GEMMD_RETURN_IF_ERROR(CheckLabel(options.label));
  GEMMD_ASSIGN_OR_RETURN(Charge charge, tenant.TakeSession());
  std::shared_ptr<Session> session;
  {
    absl::MutexLock lock(&mutex_);
    GEMMD_ASSIGN_OR_RETURN(auto ttl, Ttl(config_, options.ttl));
    GEMMD_ASSIGN_OR_RETURN(auto grace, Grace(config_, ttl, options.grace));
    // Shared by this store and by calls under way; the last one frees what the session held.
    session = std::make_shared<Session>(next_key_++, NewHandle(), tenant,
                                        SessionOptions{.ttl = ttl,
                                                       .grace = grace,
                                                       .label = std::move(options.label),
                                                       .peer = std::move(options.peer),
                                                       .device = options.device},
                                        std::move(charge), clock_.Now());
    sessions_.emplace(session->handle(), session);
  }
  metrics_.Sessions().Increment();
  PlantedLeak();
  log_.Info("session_opened", {{"session", session->name()},
                               {"tenant", tenant.name()},
                               {"label", session->options().label},
                               {"peer", session->options().peer},
                               {"ttl_ms", absl::ToInt64Milliseconds(session->options().ttl)}});
  return session;
}

absl::StatusOr<SessionUse> SessionStore::Use(const Tenant& tenant, std::string_view session_id) {
  const std::optional<Handle> handle = HandleFromBytes(session_id);
  if (!handle) {
    return absl::InvalidArgumentError(absl::StrCat("session_id has ", session_id.size(),
                                                   " bytes, not 16; use the one OpenSession gave"));
  }
  std::shared_ptr<Session> session;
  {
    absl::ReaderMutexLock lock(&mutex_);
    auto it = sessions_.find(*handle);
    if (it == sessions_.end()) return NoSession();
    session = it->second;
  }
  if (&session->tenant() != &tenant) return NoSession();
  return session->Use(clock_.Now());
}

bool SessionStore::End(Session& session, EndCause cause, Freed freed) {
  const Handle handle = session.handle();
  {
    absl::MutexLock lock(&mutex_);
    auto it = sessions_.find(handle);
    if (it == sessions_.end()) return false;
    sessions_.erase(it);
  }
  const Session::Stats stats = session.stats();
  auto let_go = [this, &session, cause, freed = std::move(freed)](Session::Freed total) mutable {
    // A call that held the session may have queued work since it ended; now nobody can.
    on_end_(session, cause);
    metrics_.Sessions().Decrement();
    if (freed) std::move(freed)(total);
  };
  if (!session.End(std::move(let_go))) return false;
  on_end_(session, cause);
  metrics_.SessionsEnded(Name(cause)).Increment();
  log_.Info("session_ended", {{"session", session.name()},
                              {"cause", Name(cause)},
                              {"buffers", stats.buffers},
                              {"buffer_bytes", stats.buffer_bytes}});
  return true;
}

std::vector<std::shared_ptr<Session>> SessionStore::Snapshot() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Session>> all;
  all.reserve(sessions_.size());
  for (const auto& [handle, session] : sessions_) all.push_back(session);
  return all;
}

void SessionStore::EndAll(EndCause cause) {
  for (const auto& session : Snapshot()) End(*session, cause);
}

void SessionStore::Reap() {
  const absl::Time now = clock_.Now();
  for (const auto& session : Snapshot()) {
    if (session->expiry() <= now) End(*session, session->ExpiryCause());
  }
}

void SessionStore::MoveTimes(absl::Duration by) {
  for (const auto& session : Snapshot()) session->MoveTimes(by);
}

std::vector<std::shared_ptr<Session>> SessionStore::List(const Tenant* tenant) const {
  std::vector<std::shared_ptr<Session>> listed = Snapshot();
  if (tenant != nullptr) {
    std::erase_if(listed, [&](const auto& session) { return &session->tenant() != tenant; });
  }
  std::sort(listed.begin(), listed.end(),
            [](const auto& a, const auto& b) { return a->key() < b->key(); });
  return listed;
}

std::shared_ptr<Session> SessionStore::FindByName(std::string_view name) const {
  for (std::shared_ptr<Session>& session : Snapshot()) {
    if (session->name() == name) return std::move(session);
  }
  return nullptr;
}

int64_t SessionStore::size() const {
  absl::ReaderMutexLock lock(&mutex_);
  return static_cast<int64_t>(sessions_.size());
}

void SessionStore::Reconfigure(const SessionConfig& config) {
  absl::MutexLock lock(&mutex_);
  config_ = config;
}

}  // namespace gemmd::server
