#include "server/service/call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"
#include "server/service/status.h"

namespace gemmd::server {
namespace {

std::atomic<uint64_t> next_number{1};

bool IsRejection(absl::StatusCode code) {
  return code == absl::StatusCode::kResourceExhausted ||
         code == absl::StatusCode::kDeadlineExceeded || code == absl::StatusCode::kUnavailable;
}

std::string_view CodeName(absl::StatusCode code) {
  static const auto* const kNames = [] {
    auto* names = new std::array<std::string, 17>;
    for (int i = 0; i < 17; ++i) {
      (*names)[i] = absl::StatusCodeToString(static_cast<absl::StatusCode>(i));
    }
    return names;
  }();
  return (*kNames)[std::clamp(static_cast<int>(code), 0, 16)];
}

}  // namespace

void LiveCalls::Enter() {
  absl::MutexLock lock(&mutex_);
  ++count_;
}

void LiveCalls::Exit() {
  absl::MutexLock lock(&mutex_);
  --count_;
}

bool LiveCalls::AwaitNone(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithDeadline(absl::Condition(
                                      +[](int64_t* count) { return *count == 0; }, &count_),
                                  deadline);
}

int64_t LiveCalls::count() const {
  absl::MutexLock lock(&mutex_);
  return count_;
}

Method::Method(ServiceContext& context, std::string name)
    : context_(context),
      name_(std::move(name)),
      seconds_(context.state.metrics().RequestSeconds(name_)) {}

void Method::Count(absl::StatusCode code, double seconds) {
  seconds_.Observe(seconds);
  auto& slot = codes_[std::clamp(static_cast<int>(code), 0, 16)];
  prometheus::Counter* counter = slot.load(std::memory_order_acquire);
  if (counter == nullptr) {
    counter = &state().metrics().Requests(name_, CodeName(code));
    slot.store(counter, std::memory_order_release);
  }
  counter->Increment();
}

Call::Call(Method& method, grpc::CallbackServerContext* context, Kind kind)
    : method_(method),
      context_(context),
      kind_(kind),
      begin_(absl::Now()),
      number_(next_number.fetch_add(1, std::memory_order_relaxed)) {
  if (kind_ == Kind::kShort) method_.context().live.Enter();
}

Call::~Call() {
  if (kind_ == Kind::kShort) method_.context().live.Exit();
}

absl::Time Call::deadline() const {
  const auto deadline = context_->deadline();
  return deadline == std::chrono::system_clock::time_point::max() ? absl::InfiniteFuture()
                                                                  : absl::FromChrono(deadline);
}

std::string Call::RequestId() const {
  return absl::StrCat(Text(std::string_view(method_.state().instance_id()).substr(0, 8)), "-",
                      number_);
}

grpc::Status Call::Finish(const absl::Status& status) {
  if (finished_) return ToGrpc(status);
  finished_ = true;
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin_);
  method_.Count(status.code(), seconds);
  Log& log = state().log();
  if (status.ok()) {
    const bool sampled = log.SampleCall();
    if (sampled || log.enabled(LogLevel::kDebug)) {
      const std::string id = RequestId();
      const Log::Fields fields = {{"method", method_.name()},
                                  {"request", id},
                                  {"tenant", tenant().name()},
                                  {"seconds", seconds}};
      sampled ? log.Info("call", fields) : log.Debug("call", fields);
    }
    return grpc::Status::OK;
  }
  const std::string reason = ReasonOf(status);
  if (IsRejection(status.code())) state().metrics().Rejected(reason).Increment();
  const std::string id = RequestId();
  context_->AddTrailingMetadata("gemmd-reason", reason);
  context_->AddTrailingMetadata("gemmd-request-id", id);
  const std::string message(status.message());
  log.Info("call_failed", {{"method", method_.name()},
                           {"request", id},
                           {"tenant", tenant().name()},
                           {"code", CodeName(status.code())},
                           {"reason", reason},
                           {"message", message},
                           {"seconds", seconds}});
  return ToGrpc(status);
}

}  // namespace gemmd::server
