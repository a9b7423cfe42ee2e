#include "tests/e2e/trace_reader.h"

#include <algorithm>
#include <iterator>

namespace gemmd::e2e {

TraceReader::TraceReader(const std::shared_ptr<grpc::Channel>& channel, absl::Duration duration,
                         bool reads)
    : stub_(v1::AdminService::NewStub(channel)) {
  v1::TraceRequest request;
  absl::Duration rest;
  request.mutable_duration()->set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  request.mutable_duration()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  stream_ = stub_->Trace(&context_, request);
  if (reads) Read();
}

TraceReader::~TraceReader() {
  Cancel();
  if (thread_.joinable()) thread_.join();
}

void TraceReader::Read() {
  thread_ = std::thread([this] {
    v1::TraceChunk chunk;
    while (stream_->Read(&chunk)) {
      absl::MutexLock lock(&mutex_);
      begun_ |= chunk.has_begin_time();
      dropped_ = std::max(dropped_, chunk.dropped());
      events_.insert(events_.end(), chunk.events().begin(), chunk.events().end());
    }
    absl::MutexLock lock(&mutex_);
    ended_ = true;
  });
}

bool TraceReader::WaitBegun() {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(
      absl::Condition(
          +[](TraceReader* self) { return self->begun_ || self->ended_; }, this),
      absl::Minutes(1));
  return begun_;
}

bool TraceReader::WaitFor(v1::TraceEvent::Kind kind, size_t count) {
  const auto enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return static_cast<size_t>(std::count_if(
               events_.begin(), events_.end(),
               [kind](const v1::TraceEvent& event) { return event.kind() == kind; })) >= count;
  };
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1));
}

std::vector<v1::TraceEvent> TraceReader::Events() {
  absl::MutexLock lock(&mutex_);
  return events_;
}

std::vector<v1::TraceEvent> TraceReader::Events(v1::TraceEvent::Kind kind) {
  std::vector<v1::TraceEvent> all = Events(), events;
  std::copy_if(all.begin(), all.end(), std::back_inserter(events),
               [kind](const v1::TraceEvent& event) { return event.kind() == kind; });
  return events;
}

int64_t TraceReader::dropped() {
  absl::MutexLock lock(&mutex_);
  return dropped_;
}

grpc::Status TraceReader::Finish() {
  thread_.join();
  return stream_->Finish();
}

}  // namespace gemmd::e2e
