// The config file. Any text: no crash, and an error has a message. A text that is accepted prints
// to one that is accepted again and means the same.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/config/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using gemmd::server::Config;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<Config> config = gemmd::server::ParseConfig(text);
  if (!config.ok()) {
    if (config.status().message().empty()) __builtin_trap();
    return 0;
  }
  const std::string printed = gemmd::server::PrintConfig(*config);
  const absl::StatusOr<Config> again = gemmd::server::ParseConfig(printed);
  if (!again.ok() || gemmd::server::PrintConfig(*again) != printed) __builtin_trap();
  return 0;
}
