#include "server/service/wire/rpc_roles.h"

#include <cstdio>
#include <cstdlib>

namespace gemmd::server {
namespace {

struct Entry {
  std::string_view method;
  RpcKind kind;
};

constexpr Entry kRpcs[] = {
    {"GetServerInfo", RpcKind::kLook},   {"ListDevices", RpcKind::kLook},
    {"ListKernels", RpcKind::kLook},     {"ListSessions", RpcKind::kLook},
    {"Explain", RpcKind::kLook},

    {"OpenSession", RpcKind::kWork},     {"KeepAlive", RpcKind::kWork},
    {"CloseSession", RpcKind::kWork},    {"Hold", RpcKind::kWork},

    {"CreateBuffer", RpcKind::kWork},    {"GetBuffer", RpcKind::kWork},
    {"ListBuffers", RpcKind::kWork},     {"DeleteBuffers", RpcKind::kWork},
    {"PublishBuffer", RpcKind::kWork},   {"FindBuffer", RpcKind::kWork},
    {"UnpublishBuffer", RpcKind::kWork}, {"ListPublished", RpcKind::kWork},
    {"SwitchVersion", RpcKind::kWork},   {"Upload", RpcKind::kWork},
    {"Download", RpcKind::kWork},        {"ExportBuffer", RpcKind::kWork},
    {"ImportBuffer", RpcKind::kWork},

    {"Execute", RpcKind::kWork},         {"Queue", RpcKind::kWork},
    {"CreatePlan", RpcKind::kWork},      {"RunPlan", RpcKind::kWork},
    {"DeletePlan", RpcKind::kWork},

    {"GetArmedRegion", RpcKind::kWork},  {"ArmPlan", RpcKind::kWork},
    {"DisarmPlan", RpcKind::kWork},      {"ListArmed", RpcKind::kWork},

    {"GetLog", RpcKind::kObserve},       {"Trace", RpcKind::kObserve},

    {"SetLog", RpcKind::kChange},        {"EndSession", RpcKind::kChange},
    {"Tune", RpcKind::kChange},          {"ExportTuning", RpcKind::kChange},
    {"ImportTuning", RpcKind::kChange},
};

}  // namespace

RpcKind KindOf(std::string_view method) {
  for (const Entry& entry : kRpcs) {
    if (entry.method == method) return entry.kind;
  }
  std::fprintf(stderr, "gemmd: service/wire/rpc_roles.cc has no entry for %.*s\n",
               static_cast<int>(method.size()), method.data());
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
