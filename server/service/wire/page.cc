#include "server/service/wire/page.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gemmd::server {

absl::StatusOr<Page> ConvertPage(int size, const std::string& token) {
  Page page;
  if (size < 0 || size > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size=", size, " is outside 0 to 1000; 0 takes 100"));
  }
  if (size > 0) page.size = size;
  if (!token.empty() && (!absl::SimpleAtoi(token, &page.skip) || page.skip < 0)) {
    return absl::InvalidArgumentError(
        "page_token is not one this server gave; use next_page_token of the last response");
  }
  return page;
}

std::string NextToken(const Page& page, int64_t total) {
  const int64_t next = page.skip + page.size;
  return next < total ? absl::StrCat(next) : "";
}

}  // namespace gemmd::server
