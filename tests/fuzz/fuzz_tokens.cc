// The token file. Any text: no crash; an error has words that can stand in a log; what is taken
// means the same when it is written down again.

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/engine/sessions/access.h"
#include "server/engine/sessions/token_file.h"

namespace {

using gemmd::server::TokenEntry;

std::string Written(const std::vector<TokenEntry>& entries) {
  std::string text;
  for (const TokenEntry& entry : entries) {
    const std::string hash(entry.hash.begin(), entry.hash.end());
    const std::string_view role = gemmd::server::Name(entry.role);
    absl::StrAppend(&text, "sha256:", absl::BytesToHexString(hash), " ", entry.name, " ",
                    entry.tenant, " ", std::string(role));
    if (entry.expires != absl::InfiniteFuture()) {
      absl::StrAppend(&text, " expires=",
                      absl::FormatTime(absl::RFC3339_full, entry.expires, absl::UTCTimeZone()));
    }
    text += '\n';
  }
  return text;
}

bool Same(const TokenEntry& a, const TokenEntry& b) {
  return a.hash == b.hash && a.name == b.name && a.tenant == b.tenant && a.role == b.role &&
         a.expires == b.expires;
}

bool IsPlain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isprint(static_cast<unsigned char>(c));
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> tenants = {"default", "red"};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto entries = gemmd::server::ParseTokenFile(text, tenants);
  if (!entries.ok()) {
    const absl::string_view message = entries.status().message();
    if (!IsPlain({message.data(), message.size()})) __builtin_trap();
    return 0;
  }
  for (const TokenEntry& entry : *entries) {
    if (!IsPlain(entry.name)) __builtin_trap();
    if (std::find(tenants.begin(), tenants.end(), entry.tenant) == tenants.end()) __builtin_trap();
  }
  const auto again = gemmd::server::ParseTokenFile(Written(*entries), tenants);
  if (!again.ok() ||
      !std::equal(entries->begin(), entries->end(), again->begin(), again->end(), Same)) {
    __builtin_trap();
  }
  return 0;
}
