#include "server/engine/sessions/token_file.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/engine/text.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr size_t kMaxTokenNameBytes = 64;
constexpr char kForm[] =
    "write sha256:<64 hex digits> <name> <tenant> <user|observer|admin> [expires=<RFC 3339 time>]";

absl::Status Wrong(int line, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", Text(what)));
}

// What a line says may come from whoever writes the file; it is shown escaped and cut.
std::string Shown(absl::string_view value) {
  return absl::StrCat("\"", absl::CHexEscape(value.substr(0, 64)), "\"");
}

bool ParseHash(absl::string_view text, TokenHash& hash) {
  if (!absl::ConsumePrefix(&text, "sha256:") || text.size() != 2 * hash.size() ||
      !std::all_of(text.begin(), text.end(),
                   [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); })) {
    return false;
  }
  const std::string bytes = absl::HexStringToBytes(text);
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return true;
}

bool IsName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxTokenNameBytes &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
}

bool ParseRole(absl::string_view text, Role& role) {
  if (text == "user") return role = Role::kUser, true;
  if (text == "observer") return role = Role::kObserver, true;
  if (text == "admin") return role = Role::kAdmin, true;
  return false;
}

absl::StatusOr<TokenEntry> ParseLine(int number, absl::string_view line,
                                     const std::vector<std::string>& tenants) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() < 4 || words.size() > 5) {
    return Wrong(number, absl::StrCat("has ", words.size(), " words instead of 4 or 5; ", kForm));
  }
  TokenEntry entry;
  if (!ParseHash(words[0], entry.hash)) {
    return Wrong(number, absl::StrCat("the first word is not a SHA-256; ", kForm));
  }
  if (!IsName(words[1])) {
    return Wrong(number, absl::StrCat("the name ", Shown(words[1]), " is not 1 to ",
                                      kMaxTokenNameBytes, " printable characters"));
  }
  entry.name = std::string(words[1]);
  entry.tenant = std::string(words[2]);
  if (std::find(tenants.begin(), tenants.end(), entry.tenant) == tenants.end()) {
    return Wrong(number, absl::StrCat("the tenant ", Shown(words[2]),
                                      " is not one of the config's; add it there first"));
  }
  if (!ParseRole(words[3], entry.role)) {
    return Wrong(number, absl::StrCat("the role ", Shown(words[3]),
                                      " is none; write user, observer or admin"));
  }
  if (words.size() == 5) {
    absl::string_view expires = words[4];
    std::string error;
    if (!absl::ConsumePrefix(&expires, "expires=") ||
        !absl::ParseTime(absl::RFC3339_full, expires, &entry.expires, &error)) {
      return Wrong(number, absl::StrCat("the last word ", Shown(words[4]),
                                        " is no expiry; write expires=2027-01-01T00:00:00Z"));
    }
  }
  return entry;
}

}  // namespace

TokenHash HashToken(std::string_view token) {
  TokenHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  return hash;
}

absl::StatusOr<std::vector<TokenEntry>> ParseTokenFile(std::string_view text,
                                                       const std::vector<std::string>& tenants) {
  std::vector<TokenEntry> entries;
  absl::flat_hash_set<TokenHash> seen;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(Text(text), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    GEMMD_ASSIGN_OR_RETURN(auto entry, ParseLine(number, line, tenants));
    if (!seen.insert(entry.hash).second) {
      return Wrong(number, "the same token stands on a line above; remove one");
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot open: ", std::strerror(errno), "; let gemmd's user read it"));
  }
  std::string text(kMaxTokenFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read: ", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxTokenFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("is above ", kMaxTokenFileBytes, " bytes; give a token file"));
  }
  return text;
}

}  // namespace gemmd::server
