#include "server/default_listeners.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace gemmd::server {
namespace {

std::string Folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') return absl::StrCat(runtime, "/gemmd");
  if (geteuid() == 0) return "/run/gemmd";
  return absl::StrCat("/tmp/gemmd-", geteuid());
}

}  // namespace

std::vector<std::string> DefaultListeners() {
  return {"127.0.0.1:8470", absl::StrCat("unix:", Folder(), "/gemmd.sock")};
}

}  // namespace gemmd::server
