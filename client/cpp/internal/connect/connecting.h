// Waiting for a connection, and saying why none stands.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cpp/internal/connect/client_core.h"
#include "client/cpp/options.h"

namespace gemmd::client {

// For options.connect_timeout at most; a TLS handshake that failed on what the two sides are is not
// waited for. UNAVAILABLE with the cause, as far as gRPC tells it, and the remedy.
absl::Status AwaitConnection(ClientCore& core);

// What gRPC's words for a connection that did not stand mean and what to do about it; "" when they
// say nothing of TLS.
std::string ExplainNoConnection(const ClientOptions& options, absl::string_view target,
                                absl::string_view grpc_text);

}  // namespace gemmd::client
