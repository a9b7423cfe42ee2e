#include "server/service/wire/call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"
#include "server/service/wire/message.h"
#include "server/service/wire/status.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

std::atomic<uint64_t> next_number{1};

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

std::optional<TraceContext> TraceOf(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("traceparent");
  if (found == metadata.end()) return std::nullopt;
  return TraceContext::Parse({found->second.data(), found->second.size()});
}

}  // namespace

void LiveCalls::Enter() {
  absl::MutexLock lock(&mutex_);
  ++count_;
  ++entered_;
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

int64_t LiveCalls::entered() const {
  absl::MutexLock lock(&mutex_);
  return entered_;
}

Method::Method(ServiceContext& context, std::string_view service, std::string name)
    : context_(context),
      name_(std::move(name)),
      kind_(KindOf(service, name_)),
      seconds_(context.state.metrics().RequestSeconds(name_)) {
  // There from the start, so that a rate sees the first failure too.
  for (auto code :
       {absl::StatusCode::kOk, absl::StatusCode::kInternal, absl::StatusCode::kUnavailable}) {
    CounterOf(code);
  }
}

void Method::Count(absl::StatusCode code, double seconds) {
  seconds_.Observe(seconds);
  CounterOf(code).Increment();
}

prometheus::Counter& Method::CounterOf(absl::StatusCode code) {
  auto& slot = codes_[std::clamp(static_cast<int>(code), 0, 16)];
  prometheus::Counter* counter = slot.load(std::memory_order_acquire);
  if (counter == nullptr) {
    counter = &state().metrics().Requests(name_, CodeName(code));
    slot.store(counter, std::memory_order_release);
  }
  return *counter;
}

Call::Call(Method& method, grpc::CallbackServerContext* context, Kind kind)
    : method_(method),
      context_(context),
      kind_(kind),
      begin_(absl::Now()),
      number_(next_number.fetch_add(1, std::memory_order_relaxed)),
      trace_(TraceOf(*context)),
      admission_(Admit()),
      sampled_(Samples()) {
  if (kind_ == Kind::kShort) method_.context().live.Enter();
}

bool Call::Samples() const {
  return method_.context().state.spans().Samples(trace_ ? std::optional(trace_->sampled())
                                                        : std::nullopt);
}

absl::Status Call::Admit() {
  GEMMD_ASSIGN_OR_RETURN(principal_, method_.context().authenticator.Authenticate(*context_));
  if (MayCall(principal_->role, method_.kind())) return absl::OkStatus();
  return WithReason(absl::PermissionDeniedError(absl::StrCat(
                        method_.name(), " is for the role ", Text(RolesOf(method_.kind())),
                        ", and the caller's is ", Text(Name(principal_->role)),
                        "; ask the server's operator for another role")),
                    reason::kRole);
}

absl::Status Call::Read(const grpc::ByteBuffer& bytes, google::protobuf::Message& request) const {
  if (!admission_.ok()) return admission_;
  GEMMD_RETURN_IF_ERROR(CheckPresent(bytes));
  return ReadMessage(bytes, request);
}

absl::Status Call::CheckPresent(const grpc::ByteBuffer& bytes) const {
  if (bytes.Valid()) return absl::OkStatus();
  // Of a client that cancels in time, mostly; that it did, gRPC tells later.
  return absl::CancelledError("the call ended before its message was here; send one");
}

Call::~Call() {
  if (kind_ == Kind::kShort) method_.context().live.Exit();
}

absl::Time Call::deadline() const {
  const auto deadline = context_->deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  // By what is left: absl's clock follows one that was set only seconds later, and would find every
  // deadline past until then.
  return absl::Now() + absl::FromChrono(deadline - std::chrono::system_clock::now());
}

std::string Call::RequestId() const {
  return absl::StrCat(Text(std::string_view(method_.state().instance_id()).substr(0, 8)), "-",
                      number_);
}

std::string Call::OwnSpanId() const {
  return SpanId(std::hash<std::string>{}(method_.state().instance_id()), number_);
}

void Call::WriteAudit(const absl::Status& status) {
  const bool refused = !admission_.ok();
  const std::string reason = ReasonOf(admission_);
  if (refused) state().metrics().AuthRefusals(reason).Increment();
  if (!refused && method_.kind() != RpcKind::kChange && method_.kind() != RpcKind::kObserve) return;
  const std::string peer = PeerName();
  const std::string id = RequestId();
  AuditEvent event{.method = method_.name(), .peer = peer, .request = id};
  if (principal_ != nullptr) {
    event.principal = principal_->name;
    event.role = Name(principal_->role);
    event.tenant = principal_->tenant->name();
  }
  if (refused) return state().audit().Refused(event, reason);
  state().audit().Admin(event, CodeName(status.code()));
}

void Call::AddToTimeline(absl::Duration duration) {
  TimelineEvent event = {.kind = TimelineEvent::Kind::kCall,
                         .begin = begin_,
                         .duration = duration,
                         .name = method_.name()};
  if (principal_ != nullptr) event.tenant = principal_->tenant->name();
  if (trace_) std::copy_n(trace_->trace_id.begin(), event.trace_id.size(), event.trace_id.begin());
  state().timeline().Add(event);
}

void Call::OfferSpan(const absl::Status& status, absl::Duration duration) {
  CallSpan call = {.trace_id = trace_ ? trace_->trace_id : NewTraceId(),
                   .span_id = OwnSpanId(),
                   .parent_id = trace_ ? trace_->span_id : "",
                   .method = method_.name(),
                   .tenant = principal_ == nullptr ? "" : principal_->tenant->name(),
                   .request = RequestId(),
                   .begin = begin_,
                   .duration = duration,
                   .parts = std::move(parts_)};
  call.SetStatus(status);
  state().spans().Offer(std::move(call));
}

void Call::OfferBatch(int64_t sequence, absl::Time begin, const absl::Status& status,
                      std::vector<SpanPart> parts) {
  CallSpan batch = {.kind = CallSpan::Kind::kBatch,
                    .trace_id = trace_ ? trace_->trace_id : NewTraceId(),
                    .span_id = NewSpanId(),
                    .parent_id = trace_ ? OwnSpanId() : "",
                    .method = method_.name(),
                    .tenant = tenant().name(),
                    .request = RequestId(),
                    .number = sequence,
                    .begin = begin,
                    .duration = absl::Now() - begin,
                    .parts = std::move(parts)};
  batch.SetStatus(status);
  state().spans().Offer(std::move(batch));
}

void Call::WriteFailed(const absl::Status& status, double seconds) {
  // The audit has refusals, as many as the log has room for.
  if (!admission_.ok()) return WriteLog(LogLevel::kDebug, "call_failed", status, seconds);
  const auto left_out = method_.context().failed_lines.Take(tenant(), begin_);
  if (left_out) WriteLog(LogLevel::kInfo, "call_failed", status, seconds, *left_out);
}

void Call::WriteLog(LogLevel level, std::string_view event, const absl::Status& status,
                    double seconds, int64_t left_out) {
  Log& log = state().log();
  if (!log.enabled(level)) return;
  const std::string id = RequestId();
  const std::string reason = ReasonOf(status);
  const std::string message(status.message());
  const std::string span = trace_ ? OwnSpanId() : "";
  std::vector<LogField> fields = {{"method", method_.name()}, {"request", id}};
  if (principal_ != nullptr) {
    fields.push_back({"tenant", principal_->tenant->name()});
    fields.push_back({"principal", principal_->name});
  }
  if (!status.ok()) {
    fields.push_back({"code", CodeName(status.code())});
    fields.push_back({"reason", reason});
    fields.push_back({"message", message});
    if (left_out > 0) fields.push_back({"left_out", left_out});
  }
  fields.push_back({"seconds", seconds});
  if (trace_) {
    fields.push_back({"trace_id", trace_->trace_id});
    fields.push_back({"span_id", span});
  }
  log.Write(level, event, fields);
}

grpc::Status Call::Finish(const absl::Status& status) {
  if (finished_) return ToGrpc(status);
  finished_ = true;
  const absl::Duration duration = absl::Now() - begin_;
  const double seconds = absl::ToDoubleSeconds(duration);
  method_.Count(status.code(), seconds);
  if (state().timeline().on()) AddToTimeline(duration);
  if (sampled_) OfferSpan(status, duration);
  if (trace_) {
    context_->AddTrailingMetadata("traceresponse", trace_->Response(OwnSpanId()));
  }
  WriteAudit(status);
  if (status.ok()) {
    const bool sampled = state().log().SampleCall();
    WriteLog(sampled ? LogLevel::kInfo : LogLevel::kDebug, "call", status, seconds);
    return grpc::Status::OK;
  }
  const std::string reason = ReasonOf(status);
  if (admission_.ok()) state().CountRejection(tenant(), status);
  context_->AddTrailingMetadata("gemmd-reason", reason);
  context_->AddTrailingMetadata("gemmd-request-id", RequestId());
  WriteFailed(status, seconds);
  return ToGrpc(status);
}

}  // namespace gemmd::server
