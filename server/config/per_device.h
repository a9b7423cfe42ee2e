// One config for several processes, each serving one of its devices: what names a place on the
// machine has to differ between them. A Unix address holds {device} where the device's name goes;
// to a TCP port the device's index among the config's is added.
//
//   "unix:/run/gemmd/{device}.sock" is "unix:/run/gemmd/cuda-1.sock" for "cuda:1",
//   "127.0.0.1:8470" is "127.0.0.1:8471" for the second device.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmd/v1/config.pb.h"

namespace gemmd::server {

// What a config is made of: the file's message and the addresses of --listen.
struct ConfigSource {
  v1::ServerConfig message;
  std::vector<std::string> listen;
};

// True where the name of a device would go.
bool HasDevicePlace(std::string_view text);
// `text` with the device's name in these places: "cuda-1" for "cuda:1".
std::string WithDeviceName(std::string_view text, std::string_view device);

// For one process with all devices: INVALID_ARGUMENT when an address has {device}.
absl::Status CheckOneProcess(const ConfigSource& source);

// A source for each of `devices`, with the addresses of its process and no other device; `devices`
// are the names that source.message lists. INVALID_ARGUMENT when an address cannot be each one's
// own.
absl::StatusOr<std::vector<ConfigSource>> SplitByDevice(const ConfigSource& source,
                                                        absl::Span<const std::string> devices);

// INVALID_ARGUMENT when a field of one device's process is where another field of another one's is:
// metrics on the port after that of clients, for instance. `sources` are SplitByDevice's.
absl::Status CheckApart(std::vector<ConfigSource> sources, absl::Span<const std::string> devices);

}  // namespace gemmd::server
