// From the global flags to a connected client, and from the client library's errors to exit codes.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/args/parser.h"
#include "client/cpp/client.h"

namespace gemmd::cli {

// Look-ups answer at once or not at all; transfers and work take what they take.
enum class CallKind { kLookUp, kWork };

// What the global flags say of time limits, TLS and the token.
client::ClientOptions ClientOptionsOf(const Args& args, CallKind kind);

// To the first of --server that answers.
absl::StatusOr<client::Client> Connect(const Args& args, CallKind kind);

// The flags of TLS and token as they were typed, for a program that this one starts.
std::vector<std::string> SecurityFlags(const Args& args);

// A failed call as the user is told of it: the server's own text, its reason and request id, and
// the exit code. What has an exit code already is told as it is.
absl::Status Explained(const absl::Status& status, absl::string_view target);

}  // namespace gemmd::cli
