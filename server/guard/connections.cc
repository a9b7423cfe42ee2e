#include "server/guard/connections.h"

#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/guard/connection.h"
#include "server/guard/peer.h"

namespace gemmd::guard {
namespace {

// gRPC takes a descriptor's number for the connection's name, and so does this.
constexpr int kMaxDescriptor = 65536;
std::atomic<Connection*> watched[kMaxDescriptor];
thread_local Connection* handing_over = nullptr;

constexpr Rate kControlFrames{.burst = 1000, .per_second = 200};  // of a connection
// Calls before one was admitted, beyond the first two of each read: one who waits for answers sends
// one or two, a flood dozens. A connection's own, so that a stranger's do not cost another of the
// same address his, and a peer's for connections that have used up theirs.
constexpr int64_t kFreeCallsOfARead = 2;
constexpr Rate kCalls{.burst = 20, .per_second = 100};
// For how long a peer without a connection is remembered, once there are many. What it has used up
// may not be whole by then, but addresses are cheaper for it than memory is here.
constexpr absl::Duration kPeerMemory = absl::Seconds(10);
constexpr size_t kForgetPeersAbove = 1024;

}  // namespace

std::string_view Name(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "none";
    case Refusal::kPeer:
      return "peer";
    case Refusal::kAll:
      return "all";
    case Refusal::kDescriptors:
      return "descriptors";
  }
  return "none";
}

ConnectionLimits Resolve(ConnectionLimits limits, int64_t descriptors) {
  const int64_t most = std::clamp<int64_t>(descriptors * 3 / 4, 4, 4096);
  if (limits.max == 0) limits.max = static_cast<int>(most);
  if (limits.max_per_peer == 0) limits.max_per_peer = std::clamp(limits.max / 2, 1, 1024);
  return limits;
}

struct Connections::State {
  State(const ConnectionLimits& bounds, OnCut told) : limits(bounds), on_cut(std::move(told)) {}

  Peer& PeerOf(const std::string& name, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (peers.size() > kForgetPeersAbove) {
      absl::erase_if(peers, [now](const auto& entry) {
        return entry.second.connections == 0 && now - entry.second.seen > kPeerMemory;
      });
    }
    Peer& peer = peers.try_emplace(name, limits).first->second;
    peer.seen = now;
    return peer;
  }

  Refusal MayOpen(const NewConnection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (connection.fd >= kMaxDescriptor) return Refusal::kPeer;
    if (connection.health_only) {
      return health_only < kHealthOnlyPlaces ? Refusal::kNone : Refusal::kPeer;
    }
    if (open >= limits.max) return Refusal::kAll;
    const absl::Time now = absl::Now();
    Peer& peer = PeerOf(connection.peer, now);
    const bool has_room = peer.connections < limits.max_per_peer && peer.MayWait(now);
    return has_room ? Refusal::kNone : Refusal::kPeer;
  }

  absl::Time TurnOf(const NewConnection& connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const absl::Time now = absl::Now();
    return connection.health_only ? now : PeerOf(connection.peer, now).TakeTurn(now);
  }

  // Before the peer can see it.
  void NoteCut(const Connection& connection, Breach breach) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    cut[static_cast<int>(breach)].fetch_add(1, std::memory_order_relaxed);
    const absl::Time now = absl::Now();
    PeerOf(connection.peer_, now).cuts.TakeUpTo(1, now);
  }

  // One of the budgets of a connection's peer.
  bool Take(const Connection& connection, TokenBucket Peer::*budget, double count, absl::Time now) {
    absl::MutexLock lock(&mutex);
    return (PeerOf(connection.peer_, now).*budget).Take(count, now);
  }

  void GiveBytes(const Connection& connection, double count) {
    absl::MutexLock lock(&mutex);
    PeerOf(connection.peer_, absl::Now()).bytes.Give(count);
  }

  // What a connection's reader has counted by now.
  void SetUnfinished(Connection& connection, int64_t bytes) {
    {
      absl::MutexLock lock(&mutex);
      // Of TLS, what was read before the descriptor was closed is looked at after it: Remove has
      // taken the connection's bytes away by then, and nobody would again.
      if (connection.fd_ < 0) return;
      unfinished_bytes += bytes - connection.unfinished_bytes_.exchange(bytes);
    }
    if (unfinished_bytes.load() > limits.max_unfinished_bytes) CutLargest();
  }

  void CutLargest() {
    std::string name;
    {
      absl::MutexLock lock(&mutex);
      Connection* largest = nullptr;
      for (const auto& [unused, connection] : by_name) {
        if (connection->cut() || connection->fd_ < 0 || connection->unfinished_bytes_ == 0)
          continue;
        if (largest == nullptr || largest->unfinished_bytes_ < connection->unfinished_bytes_) {
          largest = connection;
        }
      }
      if (largest == nullptr || largest->cut_.exchange(true)) return;
      unfinished_bytes -= largest->unfinished_bytes_.exchange(0);
      NoteCut(*largest, Breach::kUnfinished);
      shutdown(largest->fd_, SHUT_RDWR);
      name = largest->name_;
    }
    Tell(name, Breach::kUnfinished);
  }

  // Its reader found a breach.
  void Cut(Connection& connection, Breach breach) {
    if (connection.cut_.exchange(true)) return;
    {
      absl::MutexLock lock(&mutex);
      NoteCut(connection, breach);
      if (connection.fd_ >= 0) shutdown(connection.fd_, SHUT_RDWR);
    }
    Tell(connection.name_, breach);
  }

  void Tell(const std::string& name, Breach breach) {
    if (on_cut) on_cut(name, breach);
  }

  void Admit(std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto named = by_name.find(std::string(name));
    if (named != by_name.end() && !named->second->admitted_.exchange(true)) --unadmitted;
  }

  void Remove(Connection& connection) {
    absl::MutexLock lock(&mutex);
    connection.fd_ = -1;
    --(connection.health_only_ ? health_only : open);
    if (!connection.health_only_) {
      --PeerOf(connection.peer_, absl::Now()).connections;
    }
    const auto named = by_name.find(connection.name_);
    if (named != by_name.end() && named->second == &connection) by_name.erase(named);
    if (!connection.admitted_.exchange(true)) --unadmitted;
    unfinished_bytes -= connection.unfinished_bytes_.exchange(0);
  }

  const ConnectionLimits limits;
  const OnCut on_cut;
  std::atomic<int64_t> unfinished_bytes{0};
  std::atomic<int> unadmitted{0};
  std::array<std::atomic<int64_t>, kRefusals> refused = {};
  std::array<std::atomic<int64_t>, kBreaches> cut = {};
  mutable absl::Mutex mutex;
  int open ABSL_GUARDED_BY(mutex) = 0;
  int health_only ABSL_GUARDED_BY(mutex) = 0;
  absl::flat_hash_map<std::string, Peer> peers ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<std::string, Connection*> by_name ABSL_GUARDED_BY(mutex);
};

Connection::Connection(const NewConnection& connection, int max_streams,
                       std::shared_ptr<Connections::State> state)
    : peer_(connection.peer),
      name_(connection.name),
      tls_(connection.tls),
      health_only_(connection.health_only),
      state_(std::move(state)),
      fd_(connection.fd),
      reader_(max_streams),
      control_frames_(kControlFrames),
      calls_(kCalls) {}

Breach Connection::Read(std::string_view bytes, Seen& seen) {
  if (!counting_) return reader_.Read(bytes, seen);
  absl::MutexLock lock(&counting_mutex_);
  if (admitted_.load(std::memory_order_relaxed)) {
    counting_ = false;
    reader_.StopCounting();
    state_->SetUnfinished(*this, 0);
    state_->GiveBytes(*this, unadmitted_bytes_);
  }
  return reader_.Read(bytes, seen);
}

bool Connection::Take(std::string_view bytes) {
  if (cut()) return false;
  Seen seen;
  Breach breach = Read(bytes, seen);
  if (breach == Breach::kNone) breach = Judge(seen);
  if (breach != Breach::kNone) {
    state_->Cut(*this, breach);
  } else if (counting_) {
    absl::MutexLock lock(&counting_mutex_);
    state_->SetUnfinished(*this, reader_.unfinished_bytes());
  }
  return !cut();
}

void Connection::Sent(std::string_view bytes) {
  absl::MutexLock lock(&counting_mutex_);
  if (!counting_) return;
  const int64_t before = reader_.unfinished_bytes();
  while (const std::optional<FrameHeader> frame = sent_.Next(bytes)) {
    const bool ends = frame->type == kResetStream ||
                      (frame->type == kHeaders && (frame->flags & kEndStream) != 0);
    if (ends) reader_.Answered(frame->stream);
  }
  if (reader_.unfinished_bytes() != before) {
    state_->SetUnfinished(*this, reader_.unfinished_bytes());
  }
}

Breach Connection::Judge(const Seen& seen) {
  const bool asks = counting_ && (seen.calls > 0 || seen.data_bytes > 0);
  // A fast reader has use for many updates, but of what would one read before a call was admitted?
  const int64_t control = seen.control_frames + (counting_ ? seen.window_updates : 0);
  if (control == 0 && seen.resets == 0 && !asks) return Breach::kNone;
  const absl::Time now = absl::Now();
  if (!control_frames_.Take(static_cast<double>(control), now)) {
    return Breach::kControlFrames;
  }
  const auto resets = static_cast<double>(seen.resets);
  if (resets > 0 && !state_->Take(*this, &Peer::resets, resets, now)) return Breach::kResets;
  if (!counting_) return Breach::kNone;
  const auto bytes = static_cast<double>(seen.data_bytes);
  unadmitted_bytes_ += bytes;
  if (bytes > 0 && !state_->Take(*this, &Peer::bytes, bytes, now)) return Breach::kUnfinished;
  const int64_t calls = std::max<int64_t>(0, seen.calls - kFreeCallsOfARead);
  const double beyond = calls_.TakeUpTo(static_cast<double>(calls), now);
  if (beyond > 0 && !state_->Take(*this, &Peer::calls, beyond, now)) return Breach::kCalls;
  return Breach::kNone;
}

Connection* Watched(int fd) {
  if (fd < 0 || fd >= kMaxDescriptor) return nullptr;
  return watched[fd].load(std::memory_order_acquire);
}

Connection* BeingHandedOver() { return handing_over; }

void Forget(int fd) {
  Connection* const connection = watched[fd].exchange(nullptr, std::memory_order_acq_rel);
  if (connection == nullptr) return;
  connection->Closed();
  connection->Unref();
}

void Connection::Closed() { state_->Remove(*this); }

Connections::Connections(const ConnectionLimits& limits, OnCut on_cut)
    : state_(std::make_shared<State>(limits, std::move(on_cut))) {
  StandInFront();
}

Connections::~Connections() = default;

const ConnectionLimits& Connections::limits() const { return state_->limits; }

Refusal Connections::Open(const NewConnection& connection, absl::Time& turn) {
  absl::MutexLock lock(&state_->mutex);
  if (const Refusal refusal = state_->MayOpen(connection); refusal != Refusal::kNone) {
    CountRefused(refusal);
    return refusal;
  }
  turn = state_->TurnOf(connection);
  ++(connection.health_only ? state_->health_only : state_->open);
  if (!connection.health_only) ++state_->PeerOf(connection.peer, absl::Now()).connections;
  ++state_->unadmitted;
  auto* opened = new Connection(connection, state_->limits.max_streams, state_);
  state_->by_name[connection.name] = opened;
  watched[connection.fd].store(opened, std::memory_order_release);
  return Refusal::kNone;
}

void Connections::CountRefused(Refusal refusal) {
  state_->refused[static_cast<int>(refusal)].fetch_add(1, std::memory_order_relaxed);
}

bool Connections::full() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->open >= state_->limits.max;
}

bool Connections::AwaitsAdmission() const {
  return state_->unadmitted.load(std::memory_order_relaxed) > 0;
}

void Connections::NoteAdmitted(std::string_view name) {
  absl::MutexLock lock(&state_->mutex);
  state_->Admit(name);
}

ConnectionCounts Connections::counts() const {
  ConnectionCounts counts;
  {
    absl::MutexLock lock(&state_->mutex);
    counts.open = state_->open + state_->health_only;
  }
  counts.unfinished_bytes = state_->unfinished_bytes.load();
  for (int i = 0; i < kRefusals; ++i) counts.refused[i] = state_->refused[i].load();
  for (int i = 0; i < kBreaches; ++i) counts.cut[i] = state_->cut[i].load();
  return counts;
}

Connections::HandingOver::HandingOver(int fd) { handing_over = Watched(fd); }
Connections::HandingOver::~HandingOver() { handing_over = nullptr; }

}  // namespace gemmd::guard
