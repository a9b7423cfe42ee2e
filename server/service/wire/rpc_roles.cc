#include "server/service/wire/rpc_roles.h"

#include <cstdio>
#include <cstdlib>

namespace gemmd::server {
namespace {

struct Entry {
  std::string_view name;
  RpcKind kind;
};

constexpr Entry kServices[] = {
    {"AdminService", RpcKind::kChange}, {"ArmedService", RpcKind::kWork},
    {"BufferService", RpcKind::kWork},  {"ComputeService", RpcKind::kWork},
    {"DeviceService", RpcKind::kLook},  {"SessionService", RpcKind::kWork},
};

// RPCs that are for others than the rest of their service.
constexpr Entry kOthers[] = {
    {"Explain", RpcKind::kLook},
    {"ListSessions", RpcKind::kLook},
    {"GetLog", RpcKind::kObserve},
    {"Trace", RpcKind::kObserve},
};

}  // namespace

RpcKind KindOf(std::string_view service, std::string_view rpc) {
  for (const Entry& entry : kOthers) {
    if (entry.name == rpc) return entry.kind;
  }
  for (const Entry& entry : kServices) {
    if (entry.name == service) return entry.kind;
  }
  std::fprintf(stderr, "gemmd: service/wire/rpc_roles.cc has no entry for %.*s\n",
               static_cast<int>(service.size()), service.data());
  std::abort();
}

bool MayCall(Role role, RpcKind kind) {
  switch (kind) {
    case RpcKind::kLook:
      return true;
    case RpcKind::kWork:
      return role != Role::kObserver;
    case RpcKind::kObserve:
      return role != Role::kUser;
    case RpcKind::kChange:
      return role == Role::kAdmin;
  }
  return false;
}

std::string_view RolesOf(RpcKind kind) {
  switch (kind) {
    case RpcKind::kLook:
      return "user, observer or admin";
    case RpcKind::kWork:
      return "user or admin";
    case RpcKind::kObserve:
      return "observer or admin";
    case RpcKind::kChange:
      return "admin";
  }
  return "admin";
}

}  // namespace gemmd::server
