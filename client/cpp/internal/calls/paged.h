// Collects a paged list into one.

#ifndef GEMMD_CLIENT_CPP_INTERNAL_CALLS_PAGED_H_
#define GEMMD_CLIENT_CPP_INTERNAL_CALLS_PAGED_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/internal/calls/call.h"

namespace gemmd::client {

// `list(context, request, response)` asks for one page, `items(response)` are its items to move
// away.
template <typename Item, typename Request, typename Response, typename List, typename Items>
absl::StatusOr<std::vector<Item>> AllPages(const ClientCore& core, const CallOptions& options,
                                           Request request, List list, Items items) {
  std::vector<Item> all;
  request.set_page_size(1000);
  for (;;) {
    Response response;
    const absl::Status status =
        Call(core, options, Again::kAfterBreak,
             [&](grpc::ClientContext& context) { return list(&context, request, &response); });
    if (!status.ok()) return status;
    for (Item& item : *items(response)) all.push_back(std::move(item));
    if (response.next_page_token().empty()) return all;
    request.set_page_token(response.next_page_token());
  }
}

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_CPP_INTERNAL_CALLS_PAGED_H_
