// What a failed call tells beside its code and message, and the one place where gRPC codes become
// absl::Status. The message is the server's own text: what, value, limit, remedy.
//
//   auto result = session.Execute(ops);
//   if (!result.ok() && ReasonOf(result.status()) == "QUEUE_FULL") BackOff();
//   LOG(result.status() << " request " << RequestIdOf(result.status()));

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmd::client {

// The server's stable upper-case word for the failure (trailing metadata `gemmd-reason`), or ""
// when the failure did not come from the daemon: the network, a deadline seen here, the client
// itself.
std::string ReasonOf(const absl::Status& status);

// The id under which the daemon logged the request (`gemmd-request-id`), or "".
std::string RequestIdOf(const absl::Status& status);

// Attaches them; for code that makes statuses out of what the server sent, such as a Completion.
void SetReason(absl::Status& status, absl::string_view reason);
void SetRequestId(absl::Status& status, absl::string_view request_id);

}  // namespace gemmd::client
