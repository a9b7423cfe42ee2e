// Published buffers by name or by pattern, and how a buffer is shown.

#ifndef GEMMD_CLIENT_CLI_PUBLISHED_H_
#define GEMMD_CLIENT_CLI_PUBLISHED_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
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

// A buffer's members in --json, and "[2, 3]".
Json BufferDocument(const v1::Buffer& buffer);
std::string ShapeText(const v1::Buffer& buffer);

}  // namespace gemmd::cli

#endif  // GEMMD_CLIENT_CLI_PUBLISHED_H_
