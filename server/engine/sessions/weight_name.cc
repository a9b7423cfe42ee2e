#include "server/engine/sessions/weight_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/engine/text.h"

namespace gemmd::server {
namespace {

bool IsLetter(unsigned char c) {
  return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '/' || c == '-' || c == '@';
}

absl::Status BadVersion(std::string_view name, std::string_view version) {
  return absl::InvalidArgumentError(absl::StrCat("version '", Text(version), "' of name ",
                                                 Text(name), " is not 1 to ", kMaxVersion,
                                                 " without leading zeros; write m@2 or m@2/w"));
}

}  // namespace

absl::StatusOr<WeightName> ParseWeightName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("name has ", name.size(), " bytes; give 1 to ", kMaxNameBytes));
  }
  const auto bad = std::find_if_not(name.begin(), name.end(), IsLetter);
  if (bad != name.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "name has byte 0x", absl::Hex(static_cast<unsigned char>(*bad)), " at ", bad - name.begin(),
        "; use letters, digits and . _ / -, and @ in front of a version"));
  }
  const size_t at = name.find('@');
  if (at == name.npos) return WeightName{.base = name};
  if (name.find('@', at + 1) != name.npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("name ", Text(name), " has two @; a name has one version at most"));
  }
  WeightName parsed = {.base = name.substr(0, at)};
  const std::string_view behind = name.substr(at + 1);
  const size_t slash = std::min(behind.find('/'), behind.size());
  const std::string_view digits = behind.substr(0, slash);
  if (parsed.base.empty() || parsed.base.back() == '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("name ", Text(name), " has nothing in front of its @; write m@2 or m@2/w"));
  }
  const bool decimal = std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit);
  if (!decimal || digits.starts_with('0') || !absl::SimpleAtoi(Text(digits), &parsed.version) ||
      !CheckVersion(parsed.version).ok()) {
    return BadVersion(name, digits);
  }
  parsed.rest = behind.substr(slash);
  return parsed;
}

absl::Status CheckVersion(int64_t version) {
  if (version >= 1 && version <= kMaxVersion) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("version=", version, " is not 1 to ", kMaxVersion));
}

std::string VersionedName(std::string_view base, int64_t version, std::string_view rest) {
  return absl::StrCat(Text(base), "@", version, Text(rest));
}

std::vector<std::string_view> BasesOf(std::string_view name) {
  std::vector<std::string_view> bases;
  for (size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
    if (slash > 0) bases.push_back(name.substr(0, slash));
  }
  bases.push_back(name);
  return bases;
}

}  // namespace gemmd::server
