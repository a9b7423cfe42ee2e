// The token file: who may call with which bearer token. It holds hashes, so that whoever reads it
// cannot call; a token is found by its hash, so that the time of the search says nothing of it.
//
//   # name tenant role
//   sha256:9f86d081... ci default user expires=2027-01-01T00:00:00Z

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/config.h"

namespace gemmd::server {

using TokenHash = std::array<uint8_t, 32>;

// SHA-256 of a token's bytes.
TokenHash HashToken(std::string_view token);

struct TokenEntry {
  TokenHash hash;
  std::string name;  // 1 to 64 printable characters without blanks; for logs
  std::string tenant;
  Role role = Role::kUser;
  absl::Time expires = absl::InfiniteFuture();
};

inline constexpr size_t kMaxTokenFileBytes = 1 << 20;
inline constexpr size_t kMinTokenBytes = 32;
inline constexpr size_t kMaxTokenBytes = 4096;

// INVALID_ARGUMENT names the line, what is wrong with it, and the remedy; never the hash. A tenant
// must be one of `tenants`; a hash may stand once.
absl::StatusOr<std::vector<TokenEntry>> ParseTokenFile(std::string_view text,
                                                       const std::vector<std::string>& tenants);

// NOT_FOUND, or INVALID_ARGUMENT for what is too long to be one.
absl::StatusOr<std::string> ReadTokenFile(const std::string& path);

}  // namespace gemmd::server
