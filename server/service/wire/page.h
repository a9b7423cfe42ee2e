// Pages of a list: the token is how many items to skip.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace gemmd::server {

struct Page {
  int64_t skip = 0;
  int size = 100;
};

// INVALID_ARGUMENT for a size outside 0 to 1000 or a token this server did not give.
absl::StatusOr<Page> ConvertPage(int size, const std::string& token);
// The token after `page` when `total` items are there; empty at the end.
std::string NextToken(const Page& page, int64_t total);

}  // namespace gemmd::server
