// Method and Call: what every RPC does around its work: who calls, a request id, counting, timing,
// logging, and the count of live calls that a drain waits for.

#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/observe/span_queue.h"
#include "server/engine/server_state.h"
#include "server/service/compute/trace_context.h"
#include "server/service/listen/authenticate.h"
#include "server/service/wire/failed_lines.h"
#include "server/service/wire/rpc_roles.h"
#include "server/service/wire/streams.h"

namespace gemmd::server {

// Calls that were taken and not yet answered. A drain waits for zero.
class LiveCalls {
 public:
  void Enter() ABSL_LOCKS_EXCLUDED(mutex_);
  void Exit() ABSL_LOCKS_EXCLUDED(mutex_);
  // False when the deadline came first.
  bool AwaitNone(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t count() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t entered() const ABSL_LOCKS_EXCLUDED(mutex_);  // so far

 private:
  mutable absl::Mutex mutex_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t entered_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What all services of one listener share. Lives as long as the listener.
struct ServiceContext {
  ServerState& state;
  LiveCalls& live;
  StreamRegistry& streams;
  const Authenticator& authenticator;
  FailedLines failed_lines = {};
};

// One RPC's name, who may call it, and its counters. Thread-safe.
class Method {
 public:
  Method(ServiceContext& context, std::string_view service, std::string name);
  ServiceContext& context() { return context_; }
  ServerState& state() { return context_.state; }
  const std::string& name() const { return name_; }
  RpcKind kind() const { return kind_; }

 private:
  friend class Call;
  void Count(absl::StatusCode code, double seconds);
  prometheus::Counter& CounterOf(absl::StatusCode code);

  ServiceContext& context_;
  const std::string name_;
  const RpcKind kind_;
  prometheus::Histogram& seconds_;
  std::array<std::atomic<prometheus::Counter*>, 17> codes_{};  // by code, looked up once
};

// From a call's arrival to its answer. Finish exactly once.
class Call {
 public:
  enum class Kind { kShort, kStream };  // a drain waits for short calls; it ends streams itself
  Call(Method& method, grpc::CallbackServerContext* context, Kind kind = Kind::kShort);
  ~Call();
  Call(const Call&) = delete;

  // Whether the caller may make this call: UNAUTHENTICATED or PERMISSION_DENIED otherwise. Nothing
  // may be done for one that is not admitted, and it has no tenant.
  const absl::Status& admission() const { return admission_; }
  // Of a caller that is admitted. INVALID_ARGUMENT when `bytes` are no such message (message.h).
  absl::Status Read(const grpc::ByteBuffer& bytes, google::protobuf::Message& request) const;
  // CANCELLED when there are none.
  absl::Status CheckPresent(const grpc::ByteBuffer& bytes) const;

  Method& method() { return method_; }
  ServerState& state() { return method_.state(); }
  Tenant& tenant() { return *principal_->tenant; }
  // The caller's session of that handle, claimed.
  absl::StatusOr<SessionUse> UseSession(std::string_view session_id) {
    return state().sessions().Use(tenant(), session_id);
  }
  Role role() const { return principal_->role; }
  std::string_view principal_name() const { return principal_->name; }
  absl::Time deadline() const;
  absl::Time begin() const { return begin_; }
  bool cancelled() const { return context_->IsCancelled(); }
  std::string PeerName() const { return method_.context().authenticator.PeerName(*context_); }
  // Whether the call goes to a collector of traces, with what AddPart tells of it before Finish.
  bool sampled() const { return sampled_; }
  void AddPart(SpanPart part) { parts_.push_back(std::move(part)); }
  void AddParts(std::vector<SpanPart> parts) { parts_ = std::move(parts); }
  // Whether the batch of this stream that is being accepted goes there: as the caller's trace has
  // it, else by chance.
  bool SamplesBatch() const { return Samples(); }
  // It ends now: a span below the stream's, of the caller's trace, else a trace of its own. Called
  // on any thread.
  void OfferBatch(int64_t sequence, absl::Time begin, const absl::Status& status,
                  std::vector<SpanPart> parts);

  // The caller's trace; empty when it sent none.
  std::string_view trace_id() const { return trace_ ? trace_->trace_id : std::string_view(); }

  // Counts, logs, adds trailing metadata, and gives the status to finish with.
  grpc::Status Finish(const absl::Status& status);

 private:
  absl::Status Admit();
  bool Samples() const;
  std::string RequestId() const;
  std::string OwnSpanId() const;
  void WriteAudit(const absl::Status& status);
  void AddToTimeline(absl::Duration duration);
  void OfferSpan(const absl::Status& status, absl::Duration duration);
  void WriteFailed(const absl::Status& status, double seconds);
  // `left_out`: lines like this one before it.
  void WriteLog(LogLevel level, std::string_view event, const absl::Status& status, double seconds,
                int64_t left_out = 0);

  Method& method_;
  grpc::CallbackServerContext* const context_;
  const Kind kind_;
  const absl::Time begin_;
  const uint64_t number_;
  const std::optional<TraceContext> trace_;
  PrincipalRef principal_;  // null when nobody known calls
  const absl::Status admission_;
  const bool sampled_;
  std::vector<SpanPart> parts_;
  bool finished_ = false;
};

}  // namespace gemmd::server
