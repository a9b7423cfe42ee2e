// The config file. Any text: no crash, and an error has a message. A text that is accepted prints
// to one that is accepted again and means the same. So does each config of a text that is accepted
// for a process a device.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/config/load.h"

namespace {

using gemmd::server::ParsedConfig;

void CheckPrinted(const ParsedConfig& config) {
  const std::string printed = config.text;
  const absl::StatusOr<ParsedConfig> again = gemmd::server::ParseConfig(printed);
  if (!again.ok() || again->text != printed) __builtin_trap();
}

void CheckError(const absl::Status& error) {
  if (error.message().empty()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<ParsedConfig> config = gemmd::server::ParseConfig(text);
  if (config.ok()) {
    CheckPrinted(*config);
  } else {
    CheckError(config.status());
  }
  const auto configs = gemmd::server::ParseConfigPerDevice(text);
  if (!configs.ok()) {
    CheckError(configs.status());
    return 0;
  }
  for (const ParsedConfig& one : *configs) CheckPrinted(one);
  return 0;
}
