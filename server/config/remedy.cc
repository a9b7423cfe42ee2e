#include "server/config/remedy.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gemmd/v1/config.pb.h"
#include "google/protobuf/descriptor.h"

namespace gemmd::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;

std::string FieldsOf(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  return absl::StrJoin(names, ", ");
}

// The enum of the config's field of that name; null if there is none.
const EnumDescriptor* EnumOf(absl::string_view field) {
  const auto* file = v1::ServerConfig::descriptor()->file();
  for (int i = 0; i < file->message_type_count(); ++i) {
    const auto* found = file->message_type(i)->FindFieldByName(std::string(field));
    if (found != nullptr && found->enum_type() != nullptr) return found->enum_type();
  }
  return nullptr;
}

std::string ValuesOf(const EnumDescriptor& values) {
  std::vector<std::string> names;
  for (int i = 0; i < values.value_count(); ++i) {
    const std::string& name = values.value(i)->name();
    if (!absl::EndsWith(name, "_UNSPECIFIED")) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

std::string RemedyFor(absl::string_view parser_error) {
  // Its names stand in quotes: .. "first" .. "second" ..
  const std::vector<std::string> parts = absl::StrSplit(parser_error, '"');
  if (absl::StrContains(parser_error, "has no field named") && parts.size() >= 4) {
    const auto* pool = v1::ServerConfig::descriptor()->file()->pool();
    const Descriptor* message = pool->FindMessageTypeByName(parts[1]);
    if (message != nullptr) return absl::StrCat("; give one of ", FieldsOf(*message));
  }
  if (absl::StrContains(parser_error, "Unknown enumeration value") && parts.size() >= 4) {
    const EnumDescriptor* values = EnumOf(parts[3]);
    if (values != nullptr) return absl::StrCat("; give one of ", ValuesOf(*values));
  }
  if (absl::StrContains(parser_error, "Expected integer or identifier, got: \"")) {
    return "; the names of values stand without quotes";
  }
  return "";
}

}  // namespace gemmd::server
