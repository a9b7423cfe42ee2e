#include "server/service/compute/trace.h"

#include <grpcpp/alarm.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/observe/timeline.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/message_stream.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr absl::Duration kDefaultDuration = absl::Seconds(5);
constexpr absl::Duration kMostDuration = absl::Minutes(10);
// Between two looks at the recording: at a million events a second it has a third of its room left.
constexpr absl::Duration kLookEvery = absl::Milliseconds(20);
// Of one message: about 200 kB.
constexpr int kMostEvents = 2048;
// What a reader has left to take what was recorded, once the trace is over.
constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kPatienceWhenDraining = absl::Milliseconds(500);

// The wire's numbers are ours and one, so that a cast converts.
constexpr int Number(TimelineEvent::Kind kind) { return static_cast<int>(kind) + 1; }
static_assert(Number(TimelineEvent::Kind::kQueue) == v1::TraceEvent::KIND_QUEUE);
static_assert(Number(TimelineEvent::Kind::kLaunch) == v1::TraceEvent::KIND_LAUNCH);
static_assert(Number(TimelineEvent::Kind::kDevice) == v1::TraceEvent::KIND_DEVICE);
static_assert(Number(TimelineEvent::Kind::kOp) == v1::TraceEvent::KIND_OP);
static_assert(Number(TimelineEvent::Kind::kTransfer) == v1::TraceEvent::KIND_TRANSFER);
static_assert(Number(TimelineEvent::Kind::kCall) == v1::TraceEvent::KIND_CALL);

void Fill(const TimelineEvent& event, absl::Time begin, v1::TraceEvent& proto) {
  proto.set_kind(static_cast<v1::TraceEvent::Kind>(Number(event.kind)));
  proto.set_begin_ns(absl::ToInt64Nanoseconds(event.begin - begin));
  proto.set_duration_ns(absl::ToInt64Nanoseconds(event.duration));
  proto.set_device(event.device.data(), event.device.size());
  proto.set_tenant(event.tenant.data(), event.tenant.size());
  proto.set_name(event.name.data(), event.name.size());
  proto.set_program(event.program);
  proto.set_bytes(event.bytes);
  if (event.trace_id[0] != 0) proto.set_trace_id(event.trace_id.data(), event.trace_id.size());
  proto.set_estimated(event.estimated);
}

// Kept alive by gRPC (until OnDone), the registry, and the alarm that is set. One write at a time.
class TraceStream final : public MessageStream<v1::TraceChunk> {
 public:
  TraceStream(Method& method, grpc::CallbackServerContext* context)
      : MessageStream(method, context), context_(context) {}

  absl::Status Begin(const grpc::ByteBuffer& bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDone() override;
  void DrainNotice(absl::Time) override {}  // what happens meanwhile is worth seeing
  void DrainNow() override { Stop(Draining(), kPatienceWhenDraining); }

 private:
  void Broken() override { Stop(absl::CancelledError("the stream was cut"), kPatience); }
  void Written() override ABSL_LOCKS_EXCLUDED(mutex_);

  // Records no more; the stream ends with `status` once what was recorded is written, and is cut if
  // its reader has not taken that within `patience`.
  void Stop(absl::Status status, absl::Duration patience) ABSL_LOCKS_EXCLUDED(mutex_);
  void StopLocked(absl::Status status, absl::Duration patience)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a message tells; false when it would tell nothing new.
  bool Gather(v1::TraceChunk& chunk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends what there is, or ends.
  void Go() ABSL_LOCKS_EXCLUDED(mutex_);
  // Goes, now and every kLookEvery until the stream has ended.
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Time Now() { return call().state().clock().Now(); }

  grpc::CallbackServerContext* const context_;
  absl::Mutex mutex_;
  Recording recording_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;    // recording_ is one
  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;  // the first message was made
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;   // as the last message said
  bool more_ ABSL_GUARDED_BY(mutex_) = false;     // there was more than the last message holds
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time cut_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

absl::Status TraceStream::Begin(const grpc::ByteBuffer& bytes) {
  v1::TraceRequest request;
  GEMMD_RETURN_IF_ERROR(Read(bytes, request));
  GEMMD_RETURN_IF_ERROR(call().state().CheckOpen());
  const absl::Duration duration =
      request.has_duration() ? FromProto(request.duration()) : kDefaultDuration;
  if (duration <= absl::ZeroDuration() || duration > kMostDuration) {
    return absl::InvalidArgumentError(
        absl::StrCat("duration ", absl::FormatDuration(duration), " is not above 0 and at most ",
                     absl::FormatDuration(kMostDuration), "; take a longer trace in parts"));
  }
  const absl::Time now = Now();
  GEMMD_ASSIGN_OR_RETURN(Recording recording, call().state().timeline().Begin(now));
  {
    absl::MutexLock lock(&mutex_);
    recording_ = std::move(recording);
    if (ending_) recording_.Stop();  // a drain came between
    begun_ = true;
    end_ = now + duration;
  }
  Look();
  return absl::OkStatus();
}

void TraceStream::Stop(absl::Status status, absl::Duration patience) {
  {
    absl::MutexLock lock(&mutex_);
    StopLocked(std::move(status), patience);
  }
  Go();
}

void TraceStream::StopLocked(absl::Status status, absl::Duration patience) {
  if (!ending_) status_ = std::move(status);
  ending_ = true;
  cut_at_ = std::min(cut_at_, Now() + patience);
  if (begun_) recording_.Stop();
}

bool TraceStream::Gather(v1::TraceChunk& chunk) {
  if (!begun_) return false;
  if (!greeted_) {
    greeted_ = true;
    *chunk.mutable_begin_time() = ToProto(recording_.begin());
    return true;
  }
  more_ = recording_.Take(kMostEvents, [&chunk, begin = recording_.begin()](const auto& event) {
    Fill(event, begin, *chunk.add_events());
  });
  const int64_t dropped = recording_.dropped();
  chunk.set_dropped(dropped);
  return chunk.events_size() > 0 || std::exchange(dropped_, dropped) != dropped;
}

void TraceStream::Go() {
  absl::MutexLock lock(&mutex_);
  if (ended_ || !Idle()) return;
  if (!ending_ && Now() >= end_) StopLocked(absl::OkStatus(), kPatience);
  v1::TraceChunk chunk;
  if (!broken() && Gather(chunk)) {
    Send(std::move(chunk));
  } else if (ending_) {
    ended_ = true;
    End(status_);
  }
}

void TraceStream::Look() {
  Go();
  std::unique_ptr<grpc::Alarm> last;  // this may be its callback, which it outlives
  bool cut = false;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    const absl::Time now = Now();
    if (now >= cut_at_ && !Idle()) {
      cut = true;
      if (status_.ok()) {
        status_ = absl::CancelledError("the reader left the rest of the trace where it was");
      }
    }
    absl::Time next = now + kLookEvery;
    if (end_ > now) next = std::min(next, end_);
    last = std::exchange(alarm_, std::make_unique<grpc::Alarm>());
    alarm_->Set(absl::ToChronoTime(next), [this, kept = self()](bool ok) {
      if (ok) Look();
    });
  }
  if (cut) context_->TryCancel();
}

void TraceStream::Written() {
  {
    absl::MutexLock lock(&mutex_);
    if (!ending_ && !more_) return;  // until the next look
  }
  Go();
}

void TraceStream::OnDone() {
  std::unique_ptr<grpc::Alarm> alarm;  // gone after the stream, which its callback may hold
  const auto kept = self();
  {
    absl::MutexLock lock(&mutex_);
    alarm = std::move(alarm_);
    recording_.End();
  }
  MessageStream::OnDone();
}

}  // namespace

grpc::ServerWriteReactor<v1::TraceChunk>* ServeTrace(Method& method,
                                                     grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer& request) {
  return TraceStream::Start<TraceStream>(method, context, request);
}

}  // namespace gemmd::server
