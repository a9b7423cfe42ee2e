// What an address in the config file may look like. Each check returns the error after the field's
// path: value, limit, remedy.

#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gemmd::server {

// "127.0.0.1:8470", "[::1]:8470", "localhost:0", "unix:/path", "unix-abstract:name". A host that is
// not loopback is refused unless `beyond_loopback`.
absl::Status CheckListenAddress(const std::string& path, std::string_view address,
                                bool beyond_loopback);

// host:port or [v6]:port. Any interface: the numbers are no tenant's data, and a scraper on another
// machine has to reach them.
absl::Status CheckMetricsAddress(const std::string& path, std::string_view address);

// "127.0.0.1:4317", "collector.example:4317", "unix:/path": whom gemmd calls. A host that is not
// loopback is refused unless `beyond_loopback`.
absl::Status CheckCollectorAddress(const std::string& path, std::string_view address,
                                   bool beyond_loopback);

// An absolute path that fits a Unix socket's address.
absl::Status CheckSocketPath(const std::string& path, std::string_view socket_path);

// True for an address that names a file.
bool IsUnixPath(std::string_view address);
// True for an address that names a file or an abstract socket.
bool IsUnix(std::string_view address);
// True for a TCP address with port 0, of which there may be several.
bool HasFreePort(std::string_view address);
// True when one process cannot listen on both: "0.0.0.0:8470" and "localhost:8470" for two. Of
// addresses that are right.
bool Collide(std::string_view one, std::string_view other);

}  // namespace gemmd::server
