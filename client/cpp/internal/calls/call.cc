#include "client/cpp/internal/calls/call.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_method.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "client/cpp/internal/connect/backoff.h"
#include "client/cpp/internal/connect/client_core.h"
#include "client/cpp/internal/connect/connecting.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

// A call that never left says what kept it, as far as that is known.
absl::Status WithCause(const ClientCore& core, const absl::Status& status) {
  if (BreakOf(status) != Break::kUnsent) return status;
  const std::string cause = ExplainNoConnection(core.options(), core.target(), status.message());
  if (cause.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), ": ", cause));
}

// A request is of the file that has its service, and of one RPC alone.
const google::protobuf::MethodDescriptor& RpcOf(const google::protobuf::Message& request) {
  const google::protobuf::Descriptor* const type = request.GetDescriptor();
  const google::protobuf::ServiceDescriptor& service = *type->file()->service(0);
  for (int i = 0; i < service.method_count(); ++i) {
    if (service.method(i)->input_type() == type) return *service.method(i);
  }
  std::abort();  // no request
}

}  // namespace

bool MayRetry(const absl::Status& status, Again again) {
  const Break broken = BreakOf(status);
  return broken == Break::kUnsent || (broken == Break::kTorn && again == Again::kAfterBreak);
}

void Prepare(const ClientCore& core, grpc::ClientContext& context, const CallOptions& options,
             absl::Time deadline) {
  if (deadline != absl::InfiniteFuture()) context.set_deadline(absl::ToChronoTime(deadline));
  if (!options.traceparent.empty()) context.AddMetadata("traceparent", options.traceparent);
  if (TokenFile* token = core.token()) context.AddMetadata("authorization", *token->header());
}

absl::Status Call(const ClientCore& core, const CallOptions& options, Again again,
                  absl::FunctionRef<grpc::Status(grpc::ClientContext&)> attempt) {
  GEMMD_RETURN_IF_ERROR(core.Usable(options));
  const absl::Time deadline = core.DeadlineOf(options);
  Backoff backoff(core.options().retry);
  for (;;) {
    grpc::ClientContext context;
    Prepare(core, context, options, deadline);
    const absl::Status status = FromGrpc(attempt(context), context);
    if (status.ok() || !MayRetry(status, again)) return status;
    const std::optional<absl::Duration> pause = backoff.Next(deadline);
    if (!pause) return WithCause(core, status);
    absl::SleepFor(*pause);
  }
}

grpc::Status SendOnce(grpc::Channel& channel, grpc::ClientContext& context,
                      const google::protobuf::Message& request,
                      google::protobuf::Message& response) {
  using Message = google::protobuf::MessageLite;
  const google::protobuf::MethodDescriptor& method = RpcOf(request);
  const std::string name = absl::StrCat("/", method.service()->full_name(), "/", method.name());
  const grpc::internal::RpcMethod rpc(name.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
  return grpc::internal::BlockingUnaryCall<Message, Message>(&channel, rpc, &context, request,
                                                             &response);
}

absl::Status Send(const ClientCore& core, const CallOptions& options, grpc::Channel& channel,
                  const google::protobuf::Message& request, google::protobuf::Message& response) {
  const bool twice =
      RpcOf(request).options().idempotency_level() == google::protobuf::MethodOptions::IDEMPOTENT;
  return Call(
      core, options, twice ? Again::kAfterBreak : Again::kUnsentOnly,
      [&](grpc::ClientContext& context) { return SendOnce(channel, context, request, response); });
}

}  // namespace gemmd::client
