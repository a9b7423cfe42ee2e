#include "server/config/load.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gemmd/v1/config.pb.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "server/config/convert.h"

namespace gemmd::server {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

// Keeps the first error: those after it often follow from it.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
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

}  // namespace

absl::StatusOr<Config> ParseConfig(std::string_view textproto,
                                   absl::Span<const std::string> extra_listeners,
                                   absl::Span<const std::string> known_devices) {
  absl::StatusOr<v1::ServerConfig> message = ParseMessage(textproto);
  if (!message.ok()) return message.status();
  return ConvertConfig(*message, extra_listeners, known_devices);
}

absl::StatusOr<Config> LoadConfig(const std::string& path,
                                  absl::Span<const std::string> extra_listeners,
                                  absl::Span<const std::string> known_devices) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  absl::StatusOr<Config> config = ParseConfig(*text, extra_listeners, known_devices);
  if (config.ok()) return config;
  return absl::Status(config.status().code(), absl::StrCat(path, ": ", config.status().message()));
}

}  // namespace gemmd::server
