// Who may call which RPC: by its service, but for a few. docs/operations.md shows the same table.

#pragma once

#include <string_view>

#include "server/engine/sessions/access.h"

namespace gemmd::server {

enum class RpcKind {
  kLook,     // any role: what everybody may see
  kWork,     // users and admins: in their own tenant
  kObserve,  // observers and admins: what shows every tenant
  kChange,   // admins: what changes the daemon or ends another's work
};

// Ends the process for a service that has no entry: a mistake of ours, seen at the first start.
RpcKind KindOf(std::string_view service, std::string_view rpc);

bool MayCall(Role role, RpcKind kind);
std::string_view RolesOf(RpcKind kind);  // for messages: "user or admin"

}  // namespace gemmd::server
