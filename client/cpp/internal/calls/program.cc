#include "client/cpp/internal/calls/program.h"

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/internal/calls/async_calls.h"
#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "client/cpp/internal/calls/raw_call.h"
#include "client/cpp/internal/calls/reply.h"
#include "client/cpp/internal/connect/backoff.h"
#include "client/cpp/internal/connect/client_core.h"
#include "client/cpp/internal/connect/session_core.h"
#include "gemmd/v1/wire.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

static_assert(static_cast<int>(v1::ExecuteRequest::kPriorityFieldNumber) ==
                      v1::RunPlanRequest::kPriorityFieldNumber &&
                  static_cast<int>(v1::ExecuteRequest::kReportFieldNumber) ==
                      v1::RunPlanRequest::kReportFieldNumber &&
                  static_cast<int>(v1::ExecuteRequest::kOpIdFieldNumber) ==
                      v1::RunPlanRequest::kOpIdFieldNumber &&
                  static_cast<int>(v1::ExecuteRequest::kSessionIdFieldNumber) ==
                      v1::RunPlanRequest::kSessionIdFieldNumber,
              "both requests have one head");

std::array<char, 16> RandomId() {
  thread_local absl::BitGen random;  // seeded from the system; a repeat would lose a program
  const uint64_t words[2] = {random(), random()};
  std::array<char, 16> id;
  std::memcpy(id.data(), words, sizeof(words));
  return id;
}

// Everything but the ops or the plan.
std::string Head(const SessionCore& session, const ExecuteOptions& options) {
  std::string head;
  head.reserve(64);
  wire::AppendBytes(head, v1::ExecuteRequest::kSessionIdFieldNumber, session.facts().id.bytes());
  wire::AppendInt(head, v1::ExecuteRequest::kPriorityFieldNumber,
                  static_cast<int>(options.priority));
  wire::AppendInt(head, v1::ExecuteRequest::kReportFieldNumber, static_cast<int>(options.report));
  if (!options.op_id.empty()) {
    wire::AppendBytes(head, v1::ExecuteRequest::kOpIdFieldNumber, options.op_id);
  } else if (session.client().options().retry.max_attempts > 1) {
    // Without a second try there is nothing for the server to remember.
    const std::array<char, 16> id = RandomId();
    wire::AppendBytes(head, v1::ExecuteRequest::kOpIdFieldNumber, {id.data(), id.size()});
  }
  return head;
}

std::string ExecuteHead(const SessionCore& session, const ExecuteOptions& options) {
  std::string head = Head(session, options);
  wire::AppendInt(head, v1::ExecuteRequest::kDeterministicFieldNumber, options.deterministic);
  return head;
}

// From here on ops are not copied but shared with the message.
constexpr size_t kSharedBytes = 16 << 10;

grpc::Slice Shared(const OpList& ops) {
  WireBytes::Block* block = ops.Share();
  return grpc::Slice(
      block->bytes.data(), block->bytes.size(),
      [](void* held) { WireBytes::Release(static_cast<WireBytes::Block*>(held)); }, block);
}

absl::StatusOr<Result> ResultOf(const Program& program, grpc::ByteBuffer& response) {
  GEMMD_ASSIGN_OR_RETURN(std::unique_ptr<Reply> reply, Reply::Read(std::move(response)));
  if (program.elsewhere != nullptr) {
    for (const absl::string_view output : program.elsewhere->outputs) {
      reply->outputs.emplace_back().Append(output);
    }
    reply->elsewhere = program.elsewhere->memory;
  }
  return Result(std::move(reply));
}

Program Encode(const char* method, absl::string_view head, absl::string_view body) {
  grpc::Slice slice(head.size() + body.size());
  char* bytes = reinterpret_cast<char*>(const_cast<uint8_t*>(slice.begin()));
  std::memcpy(bytes, head.data(), head.size());
  std::memcpy(bytes + head.size(), body.data(), body.size());
  return {method, grpc::ByteBuffer(&slice, 1)};
}

// One asynchronous run, its tries and the pauses between them. Deletes itself when done.
class AsyncRun final : public AsyncStep {
 public:
  AsyncRun(std::shared_ptr<SessionCore> session, Program program, const CallOptions& options,
           ExecuteCallback done)
      : session_(std::move(session)),
        program_(std::move(program)),
        options_(options),
        done_(std::move(done)),
        deadline_(session_->client().DeadlineOf(options)),
        backoff_(session_->client().options().retry),
        stub_(session_->connection().channel()) {}

  void Start() {
    context_.emplace();
    Prepare(session_->client(), *context_, options_, deadline_);
    response_.Clear();
    call_ = stub_.PrepareUnaryCall(&*context_, program_.method, program_.request, calls_.queue());
    call_->StartCall();
    auto* const call = call_.get();
    calls_.Begin();
    call->Finish(&response_, &status_, Tag());  // from here on this may be gone
  }

  void Done(bool /*ok*/) override {
    if (call_ == nullptr) return Start();  // a pause is over
    call_.reset();
    Finished();
  }

 private:
  void* Tag() { return static_cast<AsyncStep*>(this); }

  void Finished() {
    const absl::Status status = FromGrpc(status_, *context_);
    if (!status.ok() && MayRetry(status, Again::kAfterBreak)) {
      if (const std::optional<absl::Duration> pause = backoff_.Next(deadline_)) {
        grpc::Alarm& alarm = alarm_.emplace();
        calls_.Begin();
        alarm.Set(calls_.queue(), absl::ToChronoTime(absl::Now() + *pause), Tag());
        return;
      }
    }
    std::unique_ptr<AsyncRun> self(this);
    done_(status.ok() ? ResultOf(program_, response_) : status);
  }

  const std::shared_ptr<SessionCore> session_;  // keeps the connection until the answer is here
  const Program program_;
  const CallOptions options_;
  const ExecuteCallback done_;
  const absl::Time deadline_;
  Backoff backoff_;
  AsyncCalls& calls_ = AsyncCalls::Get();
  grpc::GenericStub stub_;
  std::optional<grpc::ClientContext> context_;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call_;  // none during a pause
  grpc::ByteBuffer response_;
  grpc::Status status_;
  std::optional<grpc::Alarm> alarm_;
};

}  // namespace

std::string EncodePlanRun(int field, const Handle& plan, const PlanArgs& args,
                          absl::string_view inline_at) {
  std::string run;
  wire::AppendBytes(run, v1::PlanRun::kPlanIdFieldNumber, plan.bytes());
  for (const Rebinding& rebinding : args.rebind) {
    wire::Nested nested(run, v1::PlanRun::kRebindFieldNumber);
    wire::AppendBytes(run, v1::Rebinding::kFromBufferIdFieldNumber, rebinding.from.bytes());
    wire::AppendBytes(run, v1::Rebinding::kToBufferIdFieldNumber, rebinding.to.bytes());
  }
  for (absl::string_view input : args.inputs) {
    wire::AppendBytes(run, v1::PlanRun::kInputsFieldNumber, input);
  }
  absl::StrAppend(&run, inline_at);
  std::string tagged;
  wire::AppendBytes(tagged, field, run);
  return tagged;
}

Program ExecuteProgram(const SessionCore& session, const OpList& ops,
                       const ExecuteOptions& options) {
  const std::string head = ExecuteHead(session, options);
  if (ops.wire().size() < kSharedBytes) return Encode(kExecuteMethod, head, ops.wire());
  const grpc::Slice slices[] = {grpc::Slice(head), Shared(ops)};
  return {kExecuteMethod, grpc::ByteBuffer(slices, 2)};
}

Program ExecuteProgram(const SessionCore& session, absl::string_view ops,
                       const ExecuteOptions& options) {
  return Encode(kExecuteMethod, ExecuteHead(session, options), ops);
}

Program RunPlanProgram(const SessionCore& session, const Handle& plan, const PlanArgs& args,
                       const ExecuteOptions& options, absl::string_view inline_at) {
  return Encode(kRunPlanMethod, Head(session, options),
                EncodePlanRun(v1::RunPlanRequest::kRunFieldNumber, plan, args, inline_at));
}

absl::StatusOr<Result> Run(const SessionCore& session, const Program& program,
                           const CallOptions& options) {
  grpc::ByteBuffer response;
  grpc::Channel& channel = *session.connection().channel();
  const absl::Status status =
      Call(session.client(), options, Again::kAfterBreak, [&](grpc::ClientContext& context) {
        response.Clear();
        return RawUnary<grpc::ByteBuffer, grpc::ByteBuffer>(channel, program.method, context,
                                                            program.request, response);
      });
  if (!status.ok()) return status;
  return ResultOf(program, response);
}

void RunAsync(std::shared_ptr<SessionCore> session, Program program, const CallOptions& options,
              ExecuteCallback done) {
  auto* run = new AsyncRun(std::move(session), std::move(program), options, std::move(done));
  run->Start();
}

}  // namespace gemmd::client
