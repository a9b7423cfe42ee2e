// The addresses behind a target's name.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd::client {

// "gemmd.example:8470" -> {"10.0.0.1:8470", "10.0.0.2:8470"}, sorted, of one family of addresses: a
// host with one of each is one host. What is no name of the network, or names no port, is itself.
absl::StatusOr<std::vector<std::string>> LookUpTarget(const std::string& target);

// "gemmd.example" of "gemmd.example:8470" or "dns:///gemmd.example:8470"; "" when it is no name.
std::string NameOf(const std::string& target);

}  // namespace gemmd::client
