#include "server/config/fields.h"

#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gemmd::server {
namespace {

using google::protobuf::FieldDescriptor;

std::string Bound(int64_t value, std::string_view field) {
  if (field.empty()) return absl::StrCat(value);
  return absl::StrCat(std::string(field), "=", value);
}

bool IsInt32(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32;
}

}  // namespace

void Fields::Fail(const std::string& path, std::string_view message) {
  status_.Update(absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(message))));
}

std::string Section::At(absl::string_view name) const { return absl::StrCat(path_, ".", name); }

const FieldDescriptor& Section::Field(absl::string_view name) const {
  const auto* const field = message_.GetDescriptor()->FindFieldByName(std::string(name));
  if (field == nullptr) std::abort();  // a mistake of ours, met by any config
  return *field;
}

bool Section::Given(const FieldDescriptor& field) const {
  return message_.GetReflection()->HasField(message_, &field);
}

void Section::SetInt(const FieldDescriptor& field, int64_t value) {
  if (IsInt32(field)) {
    message_.GetReflection()->SetInt32(&message_, &field, static_cast<int32_t>(value));
  } else {
    message_.GetReflection()->SetInt64(&message_, &field, value);
  }
}

int64_t Section::Int(absl::string_view name, const IntRange& range, int64_t fallback) {
  const FieldDescriptor& field = Field(name);
  const auto& in = *message_.GetReflection();
  const bool given = Given(field);
  const int64_t used = !given           ? fallback
                       : IsInt32(field) ? in.GetInt32(message_, &field)
                                        : in.GetInt64(message_, &field);
  if (used >= range.min && used <= range.max) {
    SetInt(field, used);
    return used;
  }
  const std::string min = Bound(range.min, range.min_field);
  const std::string max = Bound(range.max, range.max_field);
  Fail(name, absl::StrCat(used, given ? "" : " (the default)", " is ",
                          used < range.min ? "below " : "above ", used < range.min ? min : max,
                          "; give a value between ", min, " and ", max));
  return fallback;
}

int64_t Section::IntOrUnset(absl::string_view name, const IntRange& range, int64_t fallback) {
  if (Given(Field(name))) return Int(name, range, range.min);
  SetInt(Field(name), fallback);
  return fallback;
}

absl::Duration Section::Time(absl::string_view name, const IntRange& range,
                             absl::Duration fallback) {
  const absl::Duration unit =
      absl::EndsWith(name, "_us") ? absl::Microseconds(1) : absl::Milliseconds(1);
  return unit * Int(name, range, fallback / unit);
}

double Section::Double(absl::string_view name, double min, double max, double fallback) {
  const FieldDescriptor& field = Field(name);
  const auto& in = *message_.GetReflection();
  const double used = Given(field) ? in.GetDouble(message_, &field) : fallback;
  if (used >= min && used <= max) {  // NaN is not
    in.SetDouble(&message_, &field, used);
    return used;
  }
  Fail(name, absl::StrCat(used,
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
