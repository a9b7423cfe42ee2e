#include "server/config/load.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "gemmd/v1/config.pb.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "server/config/convert.h"
#include "server/config/per_device.h"
#include "server/config/remedy.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

// Keeps the first error: those after it often follow from it.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    const std::string remedy = RemedyFor(message);
    absl::string_view said = message;
    if (!remedy.empty()) absl::ConsumeSuffix(&said, ".");
    text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", said, remedy);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

absl::StatusOr<v1::ServerConfig> ParseMessage(std::string_view textproto) {
  if (textproto.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file is above ", kMaxFileBytes, " bytes; give a config file"));
  }
  v1::ServerConfig message;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(std::string(textproto), &message)) {
    return absl::InvalidArgumentError(error.text().empty() ? "not a textproto" : error.text());
  }
  return message;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const std::string message = absl::StrCat(path, ": cannot open: ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
  }
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof())) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot read: ", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

absl::Status InFile(const std::string& path, const absl::Status& error) {
  return absl::Status(error.code(), absl::StrCat(path, ": ", error.message()));
}

}  // namespace

absl::StatusOr<ParsedConfig> ParseConfig(std::string_view textproto,
                                         absl::Span<const std::string> extra_listeners,
                                         absl::Span<const std::string> known_devices) {
  GEMMD_ASSIGN_OR_RETURN(v1::ServerConfig message, ParseMessage(textproto));
  const absl::Status one_process =
      CheckOneProcess({message, {extra_listeners.begin(), extra_listeners.end()}});
  if (!one_process.ok()) return one_process;
  return ConvertConfig(std::move(message), extra_listeners, known_devices);
}

absl::StatusOr<std::vector<ParsedConfig>> ParseConfigPerDevice(
    std::string_view textproto, absl::Span<const std::string> extra_listeners) {
  GEMMD_ASSIGN_OR_RETURN(v1::ServerConfig message, ParseMessage(textproto));
  // Of the whole file: split up, a device's path would be another, and one listed twice unseen.
  Fields fields;
  std::vector<std::string> devices;
  for (const DeviceConfig& device : ConvertDevices(message, {}, fields)) {
    devices.push_back(device.name);
  }
  if (!fields.status().ok()) return fields.status();
  GEMMD_ASSIGN_OR_RETURN(
      const auto sources,
      SplitByDevice({std::move(message), {extra_listeners.begin(), extra_listeners.end()}},
                    devices));
  std::vector<ParsedConfig> configs;
  for (const ConfigSource& source : sources) {
    GEMMD_ASSIGN_OR_RETURN(ParsedConfig config, ConvertConfig(source.message, source.listen, {}));
    configs.push_back(std::move(config));
  }
  GEMMD_RETURN_IF_ERROR(CheckApart(sources, devices));
  return configs;
}

absl::StatusOr<ParsedConfig> PickDevice(absl::Span<const ParsedConfig> per_device,
                                        std::string_view device) {
  std::vector<std::string> names;
  for (const ParsedConfig& config : per_device) {
    if (config.devices.front().name == device) return config;
    names.push_back(config.devices.front().name);
  }
  return absl::InvalidArgumentError(absl::StrCat("--device: ", Quoted(device),
                                                 " is not a device of the config; give ",
                                                 absl::StrJoin(names, " or ")));
}

absl::StatusOr<ParsedConfig> LoadConfig(const std::string& path,
                                        absl::Span<const std::string> extra_listeners,
                                        absl::Span<const std::string> known_devices) {
  GEMMD_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  absl::StatusOr<ParsedConfig> config = ParseConfig(text, extra_listeners, known_devices);
  if (config.ok()) return config;
  return InFile(path, config.status());
}

absl::StatusOr<std::vector<ParsedConfig>> LoadConfigPerDevice(
    const std::string& path, absl::Span<const std::string> extra_listeners) {
  GEMMD_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  absl::StatusOr<std::vector<ParsedConfig>> configs = ParseConfigPerDevice(text, extra_listeners);
  if (configs.ok()) return configs;
  return InFile(path, configs.status());
}

}  // namespace gemmd::server
