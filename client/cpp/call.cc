#include "client/cpp/call.h"

#include <optional>

#include "absl/time/clock.h"
#include "client/cpp/backoff.h"
#include "client/cpp/client_core.h"
#include "client/cpp/grpc_status.h"

namespace gemmd::client {

bool MayRetry(const absl::Status& status, Again again) {
  const Break broken = BreakOf(status);
  return broken == Break::kUnsent || (broken == Break::kTorn && again == Again::kAfterBreak);
}

void Prepare(grpc::ClientContext& context, const CallOptions& options, absl::Time deadline) {
  if (deadline != absl::InfiniteFuture()) context.set_deadline(absl::ToChronoTime(deadline));
  if (!options.traceparent.empty()) context.AddMetadata("traceparent", options.traceparent);
}

absl::Status Call(const ClientCore& core, const CallOptions& options, Again again,
                  absl::FunctionRef<grpc::Status(grpc::ClientContext&)> attempt) {
  const absl::Time deadline = core.DeadlineOf(options);
  Backoff backoff(core.options().retry);
  for (;;) {
    grpc::ClientContext context;
    Prepare(context, options, deadline);
    const absl::Status status = FromGrpc(attempt(context), context);
    if (status.ok() || !MayRetry(status, again)) return status;
    const std::optional<absl::Duration> pause = backoff.Next(deadline);
    if (!pause) return status;
    absl::SleepFor(*pause);
  }
}

}  // namespace gemmd::client
