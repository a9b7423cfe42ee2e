// Collects a paged list into one.

#pragma once

#include <google/protobuf/repeated_field.h>

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/options.h"
#include "status/propagate.h"

namespace gemmd::client {

// `core` is a ClientCore or a SessionCore, `items` a response's accessor: &Response::mutable_items.
template <typename Core, typename Request, typename Response, typename Item>
absl::StatusOr<std::vector<Item>> AllPages(
    Core& core, const CallOptions& options, Request request,
    google::protobuf::RepeatedPtrField<Item>* (Response::*items)()) {
  std::vector<Item> all;
  request.set_page_size(1000);
  for (;;) {
    GEMMD_ASSIGN_OR_RETURN(Response page, core.template Ask<Response>(request, options));
    for (Item& item : *(page.*items)()) all.push_back(std::move(item));
    if (page.next_page_token().empty()) return all;
    request.set_page_token(page.next_page_token());
  }
}

}  // namespace gemmd::client
