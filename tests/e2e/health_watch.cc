#include "tests/e2e/health_watch.h"

#include "absl/time/clock.h"

namespace gemmd::e2e {

HealthWatch::HealthWatch(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
  stream_ = stub_.PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_);
  stream_->StartCall(nullptr);
  if (!Step(absl::Minutes(1))) return;
  // An empty HealthCheckRequest asks about the whole server.
  grpc::Slice empty;
  stream_->WriteLast(grpc::ByteBuffer(&empty, 1), grpc::WriteOptions(), nullptr);
  Step(absl::Minutes(1));
}

HealthWatch::~HealthWatch() {
  context_.TryCancel();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool HealthWatch::Step(absl::Duration timeout) {
  void* tag = nullptr;
  bool ok = false;
  const auto status = queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(absl::Now() + timeout));
  if (status != grpc::CompletionQueue::GOT_EVENT || !ok) ended_ = true;
  return !ended_;
}

std::optional<int> HealthWatch::Next(absl::Duration timeout) {
  if (ended_) return std::nullopt;
  stream_->Read(&message_, nullptr);
  if (!Step(timeout)) return std::nullopt;
  // HealthCheckResponse { status = 1 }: tag 0x08 and a small varint; empty for UNKNOWN.
  grpc::Slice slice;
  if (!message_.TrySingleSlice(&slice).ok() || slice.size() < 2) return 0;
  return slice.begin()[1];
}

}  // namespace gemmd::e2e
