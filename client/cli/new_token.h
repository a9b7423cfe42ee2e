// A bearer token and the line by which a server knows it.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gemmd::cli {

struct TokenLine {
  std::string name;    // in the server's log; not a secret
  std::string tenant;  // one of the server's config
  std::string role;    // user, observer, admin
  absl::Time expires = absl::InfiniteFuture();
};

// 32 bytes of the system's randomness as 64 hex digits.
absl::StatusOr<std::string> NewToken();

// What could not be a word of the file is INVALID_ARGUMENT.
absl::Status Check(const TokenLine& line);
// "sha256:<hash of the token> <name> <tenant> <role> [expires=<RFC 3339>]", without newline.
std::string Text(const TokenLine& line, absl::string_view token);

}  // namespace gemmd::cli
