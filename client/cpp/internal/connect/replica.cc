#include "client/cpp/internal/connect/replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/internal/connect/backoff.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

// A thread that waits for a server can be told to stop between two of these.
constexpr absl::Duration kConnect = absl::Seconds(1);
constexpr absl::Duration kOpen = absl::Seconds(10);

absl::Status At(absl::string_view address, absl::string_view what, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(address, ": ", what, status.message()));
}

}  // namespace

Replica::Replica(ReplicaPool& pool, std::string target, std::string address, ClientOptions options)
    : pool_(pool),
      target_(std::move(target)),
      address_(std::move(address)),
      options_(std::move(options)),
      thread_([this] { Keep(); }) {}

Replica::~Replica() {
  {
    absl::MutexLock lock(&pool_.mu_);
    stopped_ = true;
    pool_.changed_.SignalAll();
  }
  thread_.join();
  Sweep(/*all=*/true);
}

bool Replica::idle() const {
  return (seat_ == nullptr || seat_->in_flight == 0) &&
         std::all_of(left_.begin(), left_.end(),
                     [](const auto& seat) { return seat->in_flight == 0; });
}

bool Replica::Wanted() const {
  return !stopped_ && (seat_ == nullptr || seat_->signs->gone || seat_->signs->draining);
}

void Replica::Keep() {
  const RetryOptions pauses = {.max_attempts = 1 << 30,
                               .initial_backoff = absl::Milliseconds(20),
                               .max_backoff = absl::Seconds(1)};
  Backoff backoff(pauses);
  for (;;) {
    {
      absl::MutexLock lock(&pool_.mu_);
      // Woken also to let go of a seat whose last call has ended.
      while (!stopped_ && !Wanted() && left_.empty()) pool_.changed_.Wait(&pool_.mu_);
      if (stopped_) return;
    }
    Sweep(/*all=*/false);
    absl::StatusOr<std::shared_ptr<ReplicaSeat>> seat = absl::UnknownError("");
    bool wanted;
    {
      absl::MutexLock lock(&pool_.mu_);
      wanted = Wanted();
    }
    if (wanted) seat = Prepare();
    absl::MutexLock lock(&pool_.mu_);
    if (wanted && seat.ok()) {
      if (seat_ != nullptr) left_.push_back(std::move(seat_));
      seat_ = *std::move(seat);
      trouble_ = absl::OkStatus();
      backoff.Reset();
    } else if (wanted) {
      trouble_ = seat.status();
    }
    pool_.changed_.SignalAll();
    const absl::Time next = absl::Now() + *backoff.Next(absl::InfiniteFuture());
    while (!stopped_ && (Wanted() || !left_.empty()) &&
           !pool_.changed_.WaitWithDeadline(&pool_.mu_, next)) {
    }
  }
}

absl::StatusOr<std::shared_ptr<ReplicaSeat>> Replica::Prepare() {
  ClientOptions client = options_;
  client.connect_timeout = std::min(kConnect, options_.connect_timeout);
  if (client.connect_timeout == absl::ZeroDuration()) client.connect_timeout = kConnect;
  GEMMD_ASSIGN_OR_RETURN(Client connected, Client::Connect(address_, client));
  // A server that is about to leave still takes sessions, but says here that it should get none.
  const absl::StatusOr<Health> health = connected.CheckHealth("", {.timeout = kConnect});
  if (!health.ok()) return At(address_, "health check: ", health.status());
  if (*health != Health::kServing) {
    return absl::UnavailableError(absl::StrCat(address_, " is ", Name(*health)));
  }
  auto seat = std::make_shared<ReplicaSeat>();
  SessionOptions session = pool_.options_.session;
  if (session.call.timeout == absl::ZeroDuration()) session.call.timeout = kOpen;
  session.on_event = [this, signs = seat->signs,
                      also = session.on_event](const SessionEvent& event) {
    if (also) also(event);
    absl::MutexLock lock(&pool_.mu_);
    (event.kind == SessionEvent::Kind::kDraining ? signs->draining : signs->gone) = true;
    pool_.changed_.SignalAll();
  };
  seat->client = std::move(connected);
  absl::StatusOr<Session> opened = seat->client.OpenSession(session);
  if (!opened.ok()) return At(address_, "open session: ", opened.status());
  seat->session = *std::move(opened);
  absl::StatusOr<std::shared_ptr<void>> state = pool_.prepare_(seat->session);
  if (!state.ok()) return At(address_, "prepare: ", state.status());
  seat->state = *std::move(state);
  return seat;
}

void Replica::Sweep(bool all) {
  std::vector<std::shared_ptr<ReplicaSeat>> unused;
  {
    absl::MutexLock lock(&pool_.mu_);
    if (all && seat_ != nullptr) left_.push_back(std::move(seat_));
    const auto idle = std::partition(left_.begin(), left_.end(), [all](const auto& seat) {
      return !all && seat->in_flight > 0;
    });
    unused.assign(std::make_move_iterator(idle), std::make_move_iterator(left_.end()));
    left_.erase(idle, left_.end());
  }
}

}  // namespace gemmd::client
