// The places on this machine that a config wants: folders of Unix sockets, and addresses to bind.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/engine/config.h"

namespace gemmd::server {

// Makes the folders of Unix sockets that are not there: the last one of each path, as the others
// are somebody else's to decide about. One below /tmp is made for this user alone, and one that is
// there must be this user's alone: anybody could have made it. The error names the listener or the
// field, the folder, and the remedy.
absl::Status MakeSocketFolders(const Config& config);

// For --check: whether the listeners' and the metrics' addresses can be bound here, and the Unix
// sockets' folders are there or can be made. Changes nothing. An address in use is no error: a
// daemon may serve there that is to be restarted with this config.
absl::Status CheckPlaces(const Config& config);

// Those of the same addresses at which somebody listens now.
std::vector<std::string> AddressesInUse(const Config& config);

}  // namespace gemmd::server
