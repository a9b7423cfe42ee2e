#include "server/config/remedy.h"

#include <utility>
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

constexpr absl::string_view kLooks =
    "a config is Protocol Buffers text: listeners { address: \"127.0.0.1:8470\" }";
constexpr absl::string_view kQuotes = "put text in quotes: address: \"127.0.0.1:8470\"";

// Parts of the parser's words, and what is behind them most often: another format's syntax, or
// quotes.
constexpr std::pair<absl::string_view, absl::string_view> kSyntax[] = {
    {"Expected identifier, got: {", kLooks},  // JSON
    {"Expected \"{\", found", kLooks},        // YAML
    {"Expected string, got: ", kQuotes},
    {"Already saw decimal point", kQuotes},
    {"Need space between number",
     "give a number without a unit: in bytes, or in the unit that ends the field's name"},
    {"Expected integer or identifier, got: \"", "the names of values stand without quotes"},
    {"Expected integer, got: \"",
     "give a number without quotes, in bytes or in the unit that ends the field's name"},
    {"Invalid value for boolean field", "give true or false"},
    {"is not an extension of", kLooks},  // TOML
    {"Expected identifier, got: /", "a comment begins with #"},
    {"non ascii",
     "outside of quotes only ASCII may stand: is it a curly quote, or a byte order mark?"},
    {"specified multiple times", "keep one, with all that belongs in it"},
};

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
  for (const auto& [words, remedy] : kSyntax) {
    if (absl::StrContains(parser_error, words)) return absl::StrCat("; ", remedy);
  }
  // Nothing behind it: the file's end.
  if (parser_error == "Expected identifier, got: ") return "; a block is open: close it with }";
  return "";
}

}  // namespace gemmd::server
