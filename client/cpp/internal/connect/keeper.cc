#include "client/cpp/internal/connect/keeper.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "gemmd/v1/session_service.grpc.pb.h"

namespace gemmd::client {
namespace {

// Between two looks at the Hold stream. Whoever waits on it in gRPC polls for the whole process,
// and each answer to another call would wake that thread first, and then the caller: 35 to 45 us of
// an Execute.
constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr absl::Duration kShortest = absl::Milliseconds(50);  // between two streams or failed calls

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

// Waits for the operation under way in `queue`. False if it failed, or there is none any more.
bool Await(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok;
}

}  // namespace

Keeper::Keeper(const ClientCore& client, Connection& connection, const Handle& session,
               Options options, BackgroundErrors& errors)
    : client_(client),
      connection_(connection),
      session_(session),
      options_(std::move(options)),
      errors_(errors),
      last_word_(absl::Now()),
      thread_([this] {
        options_.liveness == SessionOptions::Liveness::kHold ? Hold() : KeepAlive();
      }) {}

Keeper::~Keeper() {
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    if (stream_ != nullptr) stream_->TryCancel();
  }
  thread_.join();
}

bool Keeper::Stopped() const {
  absl::MutexLock lock(&mu_);
  return stopped_;
}

bool Keeper::Pause(absl::Duration pause) {
  absl::MutexLock lock(&mu_);
  return !mu_.AwaitWithTimeout(absl::Condition(&stopped_), pause);
}

void Keeper::Tell(const SessionEvent& event) const {
  if (options_.on_event) options_.on_event(event);
}

bool Keeper::Survives(const absl::Status& status) {
  errors_.Add("keep session alive", status);
  // Anything the daemon itself refuses will be refused again: above all NOT_FOUND, it has ended.
  const bool silent =
      BreakOf(status) != Break::kNone || status.code() == absl::StatusCode::kDeadlineExceeded;
  if (silent && absl::Now() - last_word_ < options_.ttl) return true;
  Tell({.kind = SessionEvent::Kind::kEnded, .status = status});
  return false;
}

void Keeper::Hold() {
  absl::Duration pause = kShortest;
  for (;;) {
    const absl::Time before = last_word_;
    const absl::Status status = HoldOnce();
    if (Stopped() || absl::IsCancelled(status)) return;
    // Another stream holds the session now, such as a queue opened with hold_session.
    if (absl::IsAborted(status)) return;
    if (last_word_ != before) pause = kShortest;
    if (!Survives(status) || !Pause(pause)) return;
    pause = std::min(pause * 2, client_.options().retry.max_backoff);
  }
}

bool Keeper::LookFor(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  for (;;) {
    const auto next = queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now());
    if (next != grpc::CompletionQueue::TIMEOUT) return ok;
    // Once stopped the stream is cancelled, and its operation comes back at once.
    if (!Pause(kLook)) return Await(queue);
  }
}

absl::Status Keeper::HoldOnce() {
  grpc::ClientContext context;
  v1::HoldRequest request;
  request.set_session_id(std::string(session_.bytes()));
  Prepare(client_, context, CallOptions(), absl::InfiniteFuture());
  {
    absl::MutexLock lock(&mu_);
    if (stopped_) return absl::CancelledError();
    stream_ = &context;
  }
  grpc::CompletionQueue queue;
  const auto stream = v1::SessionService::NewStub(connection_.channel())
                          ->AsyncHold(&context, request, &queue, nullptr);
  bool ended = false;
  v1::HoldEvent event;
  // One operation at a time: the opening, reads, the end.
  bool ok = Await(queue);
  while (ok) {
    stream->Read(&event, nullptr);
    ok = LookFor(queue);
    if (!ok) break;
    last_word_ = absl::Now();
    if (event.kind() == v1::HoldEvent::KIND_DRAINING) {
      Tell({.kind = SessionEvent::Kind::kDraining, .deadline = ToTime(event.deadline())});
    } else if (event.kind() == v1::HoldEvent::KIND_ENDED) {
      ended = true;
    }
  }
  grpc::Status end;
  stream->Finish(&end, nullptr);
  Await(queue);
  queue.Shutdown();
  Await(queue);  // false: it is empty
  const absl::Status status = FromGrpc(end, context);
  {
    absl::MutexLock lock(&mu_);
    stream_ = nullptr;
  }
  if (ended) return absl::NotFoundError("the session was closed");
  // A stream that ends well without having said so: the server went away in good order.
  return status.ok() ? absl::UnavailableError("the hold stream ended") : status;
}

void Keeper::KeepAlive() {
  const absl::Duration period = std::max(options_.ttl / 3, kShortest);
  v1::KeepAliveRequest request;
  request.set_session_id(std::string(session_.bytes()));
  absl::Duration pause = period;
  while (Pause(pause)) {
    v1::KeepAliveResponse response;
    const absl::Status status =
        Send(client_, {.timeout = period}, *connection_.channel(), request, response);
    if (status.ok()) last_word_ = absl::Now();
    pause = status.ok() ? period : kShortest;
    if (!status.ok() && !Survives(status)) return;
  }
}

}  // namespace gemmd::client
