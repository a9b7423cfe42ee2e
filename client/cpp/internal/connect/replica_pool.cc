#include "client/cpp/internal/connect/replica_pool.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cpp/errors.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "client/cpp/internal/calls/lookup.h"
#include "client/cpp/internal/connect/forked.h"
#include "client/cpp/internal/connect/replica.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

// The connection went under the call, so that the call itself may be what brought the server down.
bool IsLoss(const absl::Status& status) {
  // A server that is killed in the middle of a drain cancels what it has left, without a word.
  return BreakOf(status) == Break::kTorn || (absl::IsCancelled(status) && ReasonOf(status).empty());
}

absl::Status CheckOptions(const std::vector<std::string>& targets, const ReplicaOptions& options) {
  if (targets.empty()) return absl::InvalidArgumentError("no targets: name a server at least");
  if (options.patience <= absl::ZeroDuration() || options.max_losses < 1 ||
      options.lookup_period <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("patience and lookup_period above 0, max_losses 1 at least");
  }
  ClientOptions client = options.client;
  client.connect_timeout = absl::ZeroDuration();  // the options alone: nobody is called
  for (const std::string& target : targets) {
    GEMMD_RETURN_IF_ERROR(Client::Connect(target, client).status());
  }
  return absl::OkStatus();
}

// Waiting does not make these go away.
bool IsFinal(const absl::Status& status) {
  return !status.ok() && !MeansElsewhere(status) && !absl::IsDeadlineExceeded(status) &&
         !absl::IsResourceExhausted(status);
}

}  // namespace

bool MeansElsewhere(const absl::Status& status) {
  return absl::IsUnavailable(status) || IsLoss(status) ||
         (absl::IsNotFound(status) && ReasonOf(status) == "SESSION_GONE");
}

ReplicaPool::ReplicaPool(std::vector<std::string> targets, Prepare prepare,
                         const ReplicaOptions& options)
    : targets_(std::move(targets)), prepare_(std::move(prepare)), options_(options) {}

absl::StatusOr<std::shared_ptr<ReplicaPool>> ReplicaPool::Open(std::vector<std::string> targets,
                                                               Prepare prepare,
                                                               const ReplicaOptions& options) {
  GEMMD_RETURN_IF_ERROR(CheckOptions(targets, options));
  auto pool = MakeUnlessForked<ReplicaPool>(std::move(targets), std::move(prepare), options);
  pool->follower_ = std::thread([pool = pool.get()] { pool->Follow(); });
  GEMMD_RETURN_IF_ERROR(pool->AwaitFirst());
  return pool;
}

ReplicaPool::~ReplicaPool() {
  std::vector<std::unique_ptr<Replica>> replicas;
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    for (const auto& replica : replicas_) replica->Stop();  // all at once, then one by one
    changed_.SignalAll();
  }
  follower_.join();
  {
    absl::MutexLock lock(&mu_);
    replicas.swap(replicas_);
    for (auto& replica : leaving_) replicas.push_back(std::move(replica));
  }
}

absl::Status ReplicaPool::AwaitFirst() {
  const absl::Time deadline = absl::Now() + options_.patience;
  absl::MutexLock lock(&mu_);
  for (;;) {
    size_t final = 0;
    for (const auto& replica : replicas_) {
      if (replica->seat() != nullptr) return absl::OkStatus();
      if (IsFinal(replica->trouble())) ++final;
    }
    if (!replicas_.empty() && final == replicas_.size()) return replicas_.front()->trouble();
    if (changed_.WaitWithDeadline(&mu_, deadline)) {
      return absl::UnavailableError(absl::StrCat("no replica could be prepared within ",
                                                 absl::FormatDuration(options_.patience), ": ",
                                                 WhyNone()));
    }
  }
}

void ReplicaPool::Follow() {
  for (;;) {
    LookUp();
    Sweep();
    absl::MutexLock lock(&mu_);
    const absl::Time next =
        absl::Now() + (replicas_.empty() ? absl::Milliseconds(200) : options_.lookup_period);
    while (!stopped_ && !changed_.WaitWithDeadline(&mu_, next)) {
    }
    if (stopped_) return;
  }
}

void ReplicaPool::LookUp() {
  struct Wanted {
    std::string target;
    ClientOptions client;
  };
  std::map<std::string, Wanted> wanted;
  std::set<std::string> unknown;  // whose replicas stay as they are
  absl::Status trouble;
  for (const std::string& target : targets_) {
    const auto found = options_.lookup ? options_.lookup(target) : LookUpTarget(target);
    if (!found.ok()) trouble = found.status();
    if (!found.ok() || found->empty()) {
      unknown.insert(target);
      continue;
    }
    ClientOptions client = options_.client;
    // Certificates have the name, not the addresses behind it.
    if (client.tls && client.tls->server_name.empty()) client.tls->server_name = NameOf(target);
    for (const std::string& address : *found) wanted.emplace(address, Wanted{target, client});
  }
  absl::MutexLock lock(&mu_);
  if (stopped_) return;
  lookup_ = trouble;
  const auto leaves = std::partition(replicas_.begin(), replicas_.end(), [&](const auto& replica) {
    return wanted.erase(replica->address()) > 0 || unknown.contains(replica->target());
  });
  for (auto replica = leaves; replica != replicas_.end(); ++replica) {
    (*replica)->Stop();
    leaving_.push_back(std::move(*replica));
  }
  replicas_.erase(leaves, replicas_.end());
  for (auto& [address, one] : wanted) {
    replicas_.push_back(std::make_unique<Replica>(*this, one.target, address, one.client));
  }
  changed_.SignalAll();
}

void ReplicaPool::Sweep() {
  std::vector<std::unique_ptr<Replica>> idle;
  absl::MutexLock lock(&mu_);
  const auto done = std::partition(leaving_.begin(), leaving_.end(),
                                   [](const auto& replica) { return !replica->idle(); });
  idle.assign(std::make_move_iterator(done), std::make_move_iterator(leaving_.end()));
  leaving_.erase(done, leaving_.end());
}

std::shared_ptr<ReplicaSeat> ReplicaPool::Choose() {
  // From another one on each time, so that equals share.
  std::shared_ptr<ReplicaSeat> best;
  ++turn_;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const std::shared_ptr<ReplicaSeat> seat = replicas_[(turn_ + i) % replicas_.size()]->seat();
    if (seat == nullptr) continue;
    const auto rank = [](const ReplicaSeat& one) {
      return std::pair(one.signs->draining, one.in_flight);
    };
    if (best == nullptr || rank(*seat) < rank(*best)) best = seat;
  }
  return best;
}

std::string ReplicaPool::WhyNone() const {
  if (replicas_.empty()) return std::string(lookup_.message());
  return absl::StrJoin(replicas_, "; ", [](std::string* out, const auto& replica) {
    absl::StrAppend(out, replica->address(), ": ",
                    replica->trouble().ok() ? "not there yet" : replica->trouble().message());
  });
}

int ReplicaPool::serving() const {
  if (Forked()) return 0;  // and a thread that was not forked may have held the lock
  absl::MutexLock lock(&mu_);
  return static_cast<int>(
      std::count_if(replicas_.begin(), replicas_.end(), [](const auto& replica) {
        const std::shared_ptr<ReplicaSeat> seat = replica->seat();
        return seat != nullptr && !seat->signs->draining;
      }));
}

ReplicaPool::Turn::Turn(ReplicaPool& pool, absl::Time deadline)
    : pool_(pool), deadline_(deadline) {}

ReplicaPool::Turn::~Turn() {
  if (seat_ != nullptr) MovesOn(absl::OkStatus());
}

absl::Status ReplicaPool::Turn::Find() {
  GEMMD_RETURN_IF_ERROR(CheckForked());
  absl::MutexLock lock(&pool_.mu_);
  while ((seat_ = pool_.Choose()) == nullptr) {
    give_up_ = std::min(give_up_, absl::Now() + pool_.options_.patience);
    if (!pool_.changed_.WaitWithDeadline(&pool_.mu_, std::min(deadline_, give_up_))) continue;
    return absl::UnavailableError(absl::StrCat(
        "no replica takes work", last_.ok() ? "" : " after one failed: ", last_.message(), "; ",
        pool_.WhyNone()));
  }
  ++seat_->in_flight;
  return absl::OkStatus();
}

Session& ReplicaPool::Turn::session() const { return seat_->session; }
void* ReplicaPool::Turn::state() const { return seat_->state.get(); }

bool ReplicaPool::Turn::MovesOn(const absl::Status& status) {
  const bool elsewhere = MeansElsewhere(status);
  if (IsLoss(status)) ++losses_;
  if (elsewhere) give_up_ = std::min(give_up_, absl::Now() + pool_.options_.patience);
  last_ = status;
  absl::MutexLock lock(&pool_.mu_);
  --seat_->in_flight;
  if (elsewhere) {
    seat_->signs->gone = true;
    pool_.changed_.SignalAll();
  }
  // Under the mutex, so that the replica's thread is the last to let go.
  seat_.reset();
  return elsewhere && losses_ < pool_.options_.max_losses &&
         absl::Now() < std::min(deadline_, give_up_);
}

}  // namespace gemmd::client
