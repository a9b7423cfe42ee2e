// Published buffers by name, version or pattern, and how a buffer is shown.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/args/output.h"
#include "client/cpp/client.h"
#include "gemmd/v1/buffer_service.pb.h"

namespace gemmd::cli {

// Whether `text` has one of * ? [ in it, which no name has.
bool IsPattern(const std::string& text);

// The tenant's published buffers whose names `pattern` matches as a shell's would, but that * takes
// slashes, too: "m/*" is everything below m. Sorted by name. NOT_FOUND, which says how many names
// there are, when none matches. INVALID_ARGUMENT for a [ that is not closed.
absl::StatusOr<std::vector<v1::Buffer>> PublishedLike(client::Client& client,
                                                      const std::string& pattern);

// "m@2", also with a slash behind it. INVALID_ARGUMENT for what is no name and version.
struct VersionedPrefix {
  std::string name;  // "m"
  int64_t version = 0;
};
absl::StatusOr<VersionedPrefix> ParseVersion(const std::string& text);
Json SwitchDocument(const VersionedPrefix& to, const client::VersionSwitch& switched);
std::string SwitchText(const VersionedPrefix& to, const client::VersionSwitch& switched);

// "[2, 3]".
std::string ShapeText(const v1::Buffer& buffer);
// "45s", "90m", "30h", "12d": the time from `since_seconds`, of the Unix epoch, to `now`.
std::string AgeText(int64_t since_seconds, absl::Time now);

}  // namespace gemmd::cli
