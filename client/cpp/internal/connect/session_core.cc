#include "client/cpp/internal/connect/session_core.h"

#include <utility>

#include "client/cpp/internal/calls/arming.h"
#include "client/cpp/internal/connect/forked.h"
#include "gemmd/v1/session_service.pb.h"
#include "status/propagate.h"

namespace gemmd::client {

SessionCore::SessionCore(std::shared_ptr<ClientCore> client, SessionFacts facts)
    : client_(std::move(client)),
      connection_(client_->Next()),
      facts_(std::move(facts)),
      errors_(std::make_shared<BackgroundErrors>(client_)),
      reaper_(std::make_unique<Reaper>(client_, connection_, facts_.id, errors_)),
      inline_memory_(std::make_unique<InlineMemory>(*this)),
      arming_(std::make_unique<Arming>()) {}

SessionCore::~SessionCore() = default;

const std::shared_ptr<SessionCore>& SessionCore::None() {
  static const auto& none =
      *new auto(MakeUnlessForked<SessionCore>(ClientCore::None(), SessionFacts()));
  return none;
}

void SessionCore::End() {
  if (Forked()) return;
  keeper_.reset();
  if (facts_.close_on_destruction) {
    const absl::StatusOr<SessionClosed> closed = Close({.timeout = absl::Seconds(10)});
    // NOT_FOUND: it has ended by itself, its memory is free.
    if (!closed.ok() && !absl::IsNotFound(closed.status())) {
      errors_->Add("close session", closed.status());
    }
    return;
  }
  bool closed;
  {
    absl::MutexLock lock(&mu_);
    closed = closed_;
    if (!closed) {
      for (auto& [device, staging] : staging_) {
        absl::MutexLock staging_lock(&staging->mu);
        if (staging->made) reaper_->DropBuffer(staging->made->buffer);
      }
    }
  }
  if (closed) return;
  inline_memory_->Drop();
  reaper_->Flush();
}

void SessionCore::StartKeeper(const SessionOptions& options) {
  if (options.liveness == SessionOptions::Liveness::kNone) return;
  keeper_ = std::make_unique<Keeper>(
      *client_, connection_, facts_.id,
      Keeper::Options{
          .liveness = options.liveness, .ttl = facts_.ttl, .on_event = options.on_event},
      *errors_);
}

absl::StatusOr<SessionClosed> SessionCore::Close(const CallOptions& options) {
  {
    absl::MutexLock lock(&mu_);
    if (closed_) return absl::FailedPreconditionError("the session is closed already");
    closed_ = true;
  }
  facts_.close_on_destruction = false;
  keeper_.reset();  // before the daemon ends its stream, which would look like news
  reaper_->Stop();
  GEMMD_ASSIGN_OR_RETURN(const v1::CloseSessionResponse response,
                         Ask<v1::CloseSessionResponse>(v1::CloseSessionRequest(), options));
  return SessionClosed{response.freed_bytes(), response.freed_buffers()};
}

void SessionCore::Release() {
  keeper_.reset();
  facts_.close_on_destruction = false;
}

Staging& SessionCore::StagingFor(const std::string& device) {
  absl::MutexLock lock(&mu_);
  std::unique_ptr<Staging>& staging = staging_[device];
  if (staging == nullptr) staging = std::make_unique<Staging>();
  return *staging;
}

}  // namespace gemmd::client
