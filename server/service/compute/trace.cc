#include "server/service/compute/trace.h"

#include <grpcpp/alarm.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "prometheus/gauge.h"
#include "server/engine/observe/timeline.h"
#include "server/engine/reason.h"
#include "server/service/wire/convert.h"

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

v1::TraceEvent::Kind KindOf(TimelineEvent::Kind kind) {
  switch (kind) {
    case TimelineEvent::Kind::kQueue:
      return v1::TraceEvent::KIND_QUEUE;
    case TimelineEvent::Kind::kLaunch:
      return v1::TraceEvent::KIND_LAUNCH;
    case TimelineEvent::Kind::kDevice:
      return v1::TraceEvent::KIND_DEVICE;
    case TimelineEvent::Kind::kOp:
      return v1::TraceEvent::KIND_OP;
    case TimelineEvent::Kind::kTransfer:
      return v1::TraceEvent::KIND_TRANSFER;
    case TimelineEvent::Kind::kCall:
      return v1::TraceEvent::KIND_CALL;
  }
  return v1::TraceEvent::KIND_UNSPECIFIED;
}

void Fill(const TimelineEvent& event, absl::Time begin, v1::TraceEvent& proto) {
  proto.set_kind(KindOf(event.kind));
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
class TraceStream final : public grpc::ServerWriteReactor<v1::TraceChunk>, public DrainableStream {
 public:
  static TraceStream* Start(Method& method, grpc::CallbackServerContext* context,
                            const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void DrainNotice(absl::Time) override {}  // what happens meanwhile is worth seeing
  void DrainNow() override;

 private:
  TraceStream(Method& method, grpc::CallbackServerContext* context)
      : call_(method, context, Call::Kind::kStream), context_(context) {}

  absl::Status Begin(const grpc::ByteBuffer& bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Records no more; the stream finishes with `status` once what was recorded is written, and is
  // cut if its reader has not taken that within `patience`.
  void End(absl::Status status, absl::Duration patience) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves events into chunk_. True when the chunk tells anything new.
  bool Gather() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes what there is, or finishes.
  void Advance() ABSL_LOCKS_EXCLUDED(mutex_);
  // Advances, now and every kLookEvery until the stream has finished.
  void Look() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Time Now() { return call_.state().clock().Now(); }

  Call call_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<TraceStream> self_;
  Charge charge_;

  absl::Mutex mutex_;
  Recording recording_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;    // recording_ is one
  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;  // the first message was made
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;   // as the last message said
  bool more_ ABSL_GUARDED_BY(mutex_) = false;     // there was more than the last message holds
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // nothing can be written any more
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time cut_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
  v1::TraceChunk chunk_;  // gRPC reads it while writing_
};

TraceStream* TraceStream::Start(Method& method, grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer& request) {
  std::shared_ptr<TraceStream> stream(new TraceStream(method, context));
  stream->self_ = stream;
  method.context().streams.Add(stream);
  if (absl::Status begun = stream->Begin(request); !begun.ok()) {
    absl::MutexLock lock(&stream->mutex_);
    stream->End(std::move(begun), kPatience);
  }
  // Counted once it records: whoever sees the count may rely on that.
  method.state().metrics().Streams(method.name()).Increment();
  stream->Look();
  return stream.get();
}

absl::Status TraceStream::Begin(const grpc::ByteBuffer& bytes) {
  v1::TraceRequest request;
  if (absl::Status read = call_.Read(bytes, request); !read.ok()) return read;
  if (absl::Status open = call_.state().CheckOpen(); !open.ok()) return open;
  auto charge = call_.tenant().TakeStream();
  if (!charge.ok()) return charge.status();
  charge_ = *std::move(charge);
  const absl::Duration duration =
      request.has_duration() ? FromProto(request.duration()) : kDefaultDuration;
  if (duration <= absl::ZeroDuration() || duration > kMostDuration) {
    return absl::InvalidArgumentError(
        absl::StrCat("duration ", absl::FormatDuration(duration), " is not above 0 and at most ",
                     absl::FormatDuration(kMostDuration), "; take a longer trace in parts"));
  }
  const absl::Time now = Now();
  absl::StatusOr<Recording> recording = call_.state().timeline().Begin(now);
  if (!recording.ok()) return recording.status();
  absl::MutexLock lock(&mutex_);
  recording_ = *std::move(recording);
  if (ending_) recording_.Stop();  // a drain came between
  begun_ = true;
  end_ = now + duration;
  return absl::OkStatus();
}

void TraceStream::End(absl::Status status, absl::Duration patience) {
  if (!ending_) status_ = std::move(status);
  ending_ = true;
  cut_at_ = std::min(cut_at_, Now() + patience);
  if (begun_) recording_.Stop();
}

bool TraceStream::Gather() {
  if (!begun_) return false;
  chunk_.Clear();
  if (!greeted_) {
    greeted_ = true;
    *chunk_.mutable_begin_time() = ToProto(recording_.begin());
    return true;
  }
  more_ = recording_.Take(kMostEvents, [this, begin = recording_.begin()](const auto& event) {
    Fill(event, begin, *chunk_.add_events());
  });
  const int64_t dropped = recording_.dropped();
  chunk_.set_dropped(dropped);
  return chunk_.events_size() > 0 || std::exchange(dropped_, dropped) != dropped;
}

void TraceStream::Advance() {
  absl::Status status;
  bool write = false;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    if (!ending_ && Now() >= end_) End(absl::OkStatus(), kPatience);
    if (!broken_ && Gather()) {
      write = writing_ = true;
    } else if (ending_) {
      finished_ = true;
      status = status_;
    } else {
      return;
    }
  }
  if (write) {
    StartWrite(&chunk_);
  } else {
    Finish(call_.Finish(status));
  }
}

void TraceStream::Look() {
  Advance();
  std::unique_ptr<grpc::Alarm> last;  // this may be its callback, which it outlives
  bool cut = false;
  {
    absl::MutexLock lock(&mutex_);
    if (finished_) return;
    const absl::Time now = Now();
    if (writing_ && now >= cut_at_) {
      cut = broken_ = true;
      if (status_.ok()) {
        status_ = absl::CancelledError("the reader left the rest of the trace where it was");
      }
    }
    absl::Time next = now + kLookEvery;
    if (end_ > now) next = std::min(next, end_);
    last = std::exchange(alarm_, std::make_unique<grpc::Alarm>());
    alarm_->Set(absl::ToChronoTime(next), [self = self_](bool ok) {
      if (ok) self->Look();
    });
  }
  if (cut) context_->TryCancel();
}

void TraceStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) {
      broken_ = true;
      End(absl::CancelledError("the reader went away"), kPatience);
    }
    if (!ending_ && !more_) return;  // until the next look
  }
  Advance();
}

void TraceStream::OnCancel() {
  {
    absl::MutexLock lock(&mutex_);
    broken_ = true;
    End(absl::CancelledError("the stream was cut"), kPatience);
  }
  Advance();
}

void TraceStream::DrainNow() {
  {
    absl::MutexLock lock(&mutex_);
    End(WithReason(absl::UnavailableError("the server is draining; go to another"),
                   reason::kDraining),
        kPatienceWhenDraining);
  }
  Advance();
}

void TraceStream::OnDone() {
  std::unique_ptr<grpc::Alarm> alarm;  // gone after the stream, which its callback may hold
  {
    absl::MutexLock lock(&mutex_);
    alarm = std::move(alarm_);
    recording_.End();
  }
  charge_.Release();
  call_.state().metrics().Streams(call_.method().name()).Decrement();
  const std::shared_ptr<TraceStream> self = std::move(self_);
  call_.method().context().streams.Remove(self);
}

}  // namespace

grpc::ServerWriteReactor<v1::TraceChunk>* ServeTrace(Method& method,
                                                     grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer& request) {
  return TraceStream::Start(method, context, request);
}

}  // namespace gemmd::server
