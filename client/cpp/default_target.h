// Which server is meant where none is named.

#pragma once

#include <string>
#include <vector>

namespace gemmd::client {

// Where TCP is served when nothing else is said.
inline constexpr char kDefaultTcpTarget[] = "127.0.0.1:8470";

// The environment's GEMMD_SERVER; without it the Unix socket of a daemon that was started without
// an address, where there is one; else kDefaultTcpTarget.
std::string DefaultTarget();

// Where such a daemon has its socket, best first: $XDG_RUNTIME_DIR/gemmd, /run/gemmd, and
// /tmp/gemmd-UID, which counts only as a folder of this user's own that nobody else may write to.
std::vector<std::string> DefaultSockets();

}  // namespace gemmd::client
