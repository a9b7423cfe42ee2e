#include "client/cpp/internal/calls/call.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "client/cpp/internal/connect/backoff.h"
#include "client/cpp/internal/connect/client_core.h"
#include "client/cpp/internal/connect/connecting.h"

namespace gemmd::client {
namespace {

// A call that never left says what kept it, as far as that is known.
absl::Status WithCause(const ClientCore& core, const absl::Status& status) {
  if (BreakOf(status) != Break::kUnsent) return status;
  const std::string cause = ExplainNoConnection(core.options(), core.target(), status.message());
  if (cause.empty()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), ": ", cause));
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

}  // namespace gemmd::client
