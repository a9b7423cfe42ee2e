// One unary call with its deadline, metadata and retries. The only loop that tries a unary call
// again; the table of what may be is in options.h.

#ifndef GEMMD_CLIENT_CPP_INTERNAL_CALLS_CALL_H_
#define GEMMD_CLIENT_CPP_INTERNAL_CALLS_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/options.h"

namespace gemmd::client {

class ClientCore;

enum class Again {
  kAfterBreak,  // doing it twice is doing it once
  kUnsentOnly,  // a break leaves open whether it happened; only what never left is tried again
};

// Whether a call that ended so may be tried again.
bool MayRetry(const absl::Status& status, Again again);

// Deadline, trace context and token of a call, on a fresh context. Every call goes through here.
void Prepare(const ClientCore& core, grpc::ClientContext& context, const CallOptions& options,
             absl::Time deadline);

// `attempt` makes the call on the context it gets; called again for each try.
absl::Status Call(const ClientCore& core, const CallOptions& options, Again again,
                  absl::FunctionRef<grpc::Status(grpc::ClientContext&)> attempt);

// A call of a stub's method:
//   UnaryCall{core, options, Again::kAfterBreak}(stubs.admin, &v1::AdminService::Stub::GetLog,
//   request)
struct UnaryCall {
  const ClientCore& core;
  const CallOptions& options;
  Again again;

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> operator()(Stub& stub,
                                      grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                   const Request&, Response*),
                                      const Request& request) const {
    Response response;
    const absl::Status status = Call(core, options, again, [&](grpc::ClientContext& context) {
      return (stub.*method)(&context, request, &response);
    });
    if (!status.ok()) return status;
    return response;
  }
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_CPP_INTERNAL_CALLS_CALL_H_
