// From ClientOptions to what a connection needs: channel credentials, and the token's file.

#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/internal/connect/token_file.h"
#include "client/cpp/options.h"

namespace gemmd::client {

struct Security {
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // shared by the client's channels
  std::unique_ptr<TokenFile> token;                       // null: none is shown
};

// INVALID_ARGUMENT for options that contradict each other or the target, what the files' own
// errors are, FAILED_PRECONDITION for a token that would travel where others can read it.
absl::StatusOr<Security> MakeSecurity(absl::string_view target, const ClientOptions& options);

}  // namespace gemmd::client
