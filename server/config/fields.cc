#include "server/config/fields.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace gemmd::server {
namespace {

std::string Bound(int64_t value, std::string_view field) {
  if (field.empty()) return absl::StrCat(value);
  return absl::StrCat(std::string(field), "=", value);
}

}  // namespace

void Fields::Fail(const std::string& path, std::string_view message) {
  status_.Update(absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(message))));
}

int64_t Fields::Int(const std::string& path, int64_t value, const IntRange& range,
                    int64_t fallback) {
  const int64_t used = value == 0 ? fallback : value;
  if (used >= range.min && used <= range.max) return used;
  const std::string min = Bound(range.min, range.min_field);
  const std::string max = Bound(range.max, range.max_field);
  Fail(path, absl::StrCat(used, value == 0 ? " (the default)" : "", " is ",
                          used < range.min ? "below " : "above ", used < range.min ? min : max,
                          "; give a value between ", min, " and ", max));
  return fallback;
}

int64_t Fields::IntOrUnset(const std::string& path, int64_t value, const IntRange& range) {
  return value == 0 ? 0 : Int(path, value, range, range.min);
}

double Fields::Double(const std::string& path, double value, double min, double max,
                      double fallback) {
  const double used = value == 0 ? fallback : value;
  if (used >= min && used <= max) return used;  // NaN is not
  Fail(path, absl::StrCat(used,
                          used < min   ? absl::StrCat(" is below ", min)
                          : used > max ? absl::StrCat(" is above ", max)
                                       : " is not a number",
                          "; give a value between ", min, " and ", max));
  return fallback;
}

std::string Quoted(std::string_view value) {
  constexpr size_t kShown = 64;
  const std::string shown = absl::CHexEscape(std::string(value.substr(0, kShown)));
  return absl::StrCat("\"", shown, value.size() > kShown ? "..." : "", "\"");
}

}  // namespace gemmd::server
