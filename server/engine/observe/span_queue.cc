#include "server/engine/observe/span_queue.h"

#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"

namespace gemmd::server {
namespace {

absl::BitGen& Random() {
  thread_local absl::BitGen random;
  return random;
}

}  // namespace

void CallSpan::SetStatus(const absl::Status& status) {
  code = absl::StatusCodeToString(status.code());
  reason = ReasonOf(status);
  message = std::string(status.message());
}

bool SpanQueue::Samples(std::optional<bool> caller_samples) const {
  if (!on_) return false;
  return caller_samples.value_or(absl::Bernoulli(Random(), share_));
}

void SpanQueue::Offer(CallSpan call) {
  const int64_t spans = static_cast<int64_t>(call.spans());
  {
    absl::MutexLock lock(&mutex_);
    if (!stopped_ && waiting_.size() < most_calls_) {
      waiting_.push_back(std::move(call));
      return;
    }
  }
  dropped_.fetch_add(spans, std::memory_order_relaxed);
}

std::vector<CallSpan> SpanQueue::Take() {
  std::vector<CallSpan> taken;
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopped_ || !waiting_.empty();
  };
  mutex_.Await(absl::Condition(&ready));
  taken.swap(waiting_);
  return taken;
}

void SpanQueue::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

bool SpanQueue::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

std::string NewTraceId() {
  const uint64_t high = absl::Uniform<uint64_t>(Random());
  return absl::StrCat(absl::Hex(high, absl::kZeroPad16), NewSpanId());
}

std::string NewSpanId() {
  const uint64_t id = absl::Uniform<uint64_t>(absl::IntervalClosed, Random(), 1, ~uint64_t{0});
  return absl::StrCat(absl::Hex(id, absl::kZeroPad16));
}

}  // namespace gemmd::server
