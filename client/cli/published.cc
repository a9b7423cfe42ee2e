#include "client/cli/published.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/printable.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

// fnmatch takes a [ that nothing closes for itself, and then matches no name.
bool HasOpenBracket(const std::string& pattern) {
  const size_t open = pattern.rfind('[');
  return open != std::string::npos && pattern.find(']', open + 2) == std::string::npos;
}

}  // namespace

bool IsPattern(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

absl::StatusOr<std::vector<v1::Buffer>> PublishedLike(client::Client& client,
                                                      const std::string& pattern) {
  if (HasOpenBracket(pattern)) {
    return WithExit(ExitCode::kUsage,
                    absl::InvalidArgumentError(absl::StrCat(
                        "pattern '", pattern, "' has a [ that no ] closes; write [abc] or [a-z]")));
  }
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::Buffer> all, client.ListPublished());
  const size_t there_are = all.size();
  std::erase_if(all, [&](const v1::Buffer& buffer) {
    return fnmatch(pattern.c_str(), buffer.published_name().c_str(), 0) != 0;
  });
  if (all.empty()) {
    return absl::NotFoundError(absl::StrCat("no published name matches '", pattern, "'; there are ",
                                            there_are, ": 'gemmctl published' lists them"));
  }
  std::sort(all.begin(), all.end(), [](const v1::Buffer& a, const v1::Buffer& b) {
    return a.published_name() < b.published_name();
  });
  return all;
}

absl::StatusOr<VersionedPrefix> ParseVersion(const std::string& text) {
  const absl::string_view trimmed = absl::StripSuffix(text, "/");
  const std::vector<std::string> parts = absl::StrSplit(trimmed, '@');
  VersionedPrefix parsed;
  if (parts.size() == 2 && !parts[0].empty() && absl::SimpleAtoi(parts[1], &parsed.version) &&
      parsed.version >= 1 && parts[1] == absl::StrCat(parsed.version)) {
    parsed.name = parts[0];
    return parsed;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no name with a version; write m@2, with a version of 1 or more"));
}

Json SwitchDocument(const VersionedPrefix& to, const client::VersionSwitch& switched) {
  return {{"name", to.name},
          {"version", to.version},
          {"previous_version", switched.previous_version},
          {"names", switched.names}};
}

std::string SwitchText(const VersionedPrefix& to, const client::VersionSwitch& switched) {
  return absl::StrCat(
      Printable(to.name), " is version ", to.version, " now (", switched.names, " names)",
      switched.previous_version == 0 ? "" : absl::StrCat(", it was ", switched.previous_version),
      "\n");
}

std::string ShapeText(const v1::Buffer& buffer) {
  return absl::StrCat("[", absl::StrJoin(buffer.shape(), ", "), "]");
}

std::string AgeText(int64_t since_seconds, absl::Time now) {
  const int64_t age = std::max<int64_t>(0, absl::ToUnixSeconds(now) - since_seconds);
  if (age < 120) return absl::StrCat(age, "s");
  if (age < 2 * 3600) return absl::StrCat(age / 60, "m");
  if (age < 2 * 86400) return absl::StrCat(age / 3600, "h");
  return absl::StrCat(age / 86400, "d");
}

}  // namespace gemmd::cli
