#include "client/cli/new_token.h"

#include <errno.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/random.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace gemmd::cli {
namespace {

// Visible ASCII; '#' would begin a comment.
bool IsWord(absl::string_view text, size_t longest) {
  return !text.empty() && text.size() <= longest &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isgraph(c) && c != '#'; });
}

}  // namespace

absl::StatusOr<std::string> NewToken() {
  char bytes[32];
  if (getrandom(bytes, sizeof(bytes), 0) != static_cast<ssize_t>(sizeof(bytes))) {
    return absl::InternalError(absl::StrCat("the system gives no randomness: ", strerror(errno)));
  }
  return absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
}

absl::Status Check(const TokenLine& line) {
  if (!IsWord(line.name, 64)) {
    return absl::InvalidArgumentError(
        "--name is 1 to 64 visible ASCII characters without '#': it is one word of a line");
  }
  const bool is_tenant =
      IsWord(line.tenant, 32) && std::all_of(line.tenant.begin(), line.tenant.end(), [](char c) {
        return absl::ascii_islower(static_cast<unsigned char>(c)) ||
               absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
      });
  if (!is_tenant) {
    return absl::InvalidArgumentError(
        "--tenant is 1 to 32 of [a-z0-9-], as in the server's config");
  }
  return absl::OkStatus();
}

std::string Text(const TokenLine& line, absl::string_view token) {
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash);
  std::string text = absl::StrCat(
      "sha256:",
      absl::BytesToHexString(absl::string_view(reinterpret_cast<char*>(hash), sizeof(hash))), " ",
      line.name, " ", line.tenant, " ", line.role);
  if (line.expires != absl::InfiniteFuture()) {
    absl::StrAppend(&text, " expires=",
                    absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", line.expires, absl::UTCTimeZone()));
  }
  return text;
}

}  // namespace gemmd::cli
