#include "client/cpp/default_target.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace gemmd::client {
namespace {

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// /tmp is everybody's: another user could have made the folder, and a server in it.
bool IsOurs(const std::string& folder) {
  struct stat info;
  return lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (info.st_mode & 077) == 0;
}

bool IsSocket(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}

}  // namespace

std::vector<std::string> DefaultSockets() {
  std::vector<std::string> folders;
  const std::string runtime = Environment("XDG_RUNTIME_DIR");
  if (!runtime.empty() && runtime[0] == '/') folders.push_back(absl::StrCat(runtime, "/gemmd"));
  folders.push_back("/run/gemmd");
  const std::string own = absl::StrCat("/tmp/gemmd-", geteuid());
  if (IsOurs(own)) folders.push_back(own);
  for (std::string& folder : folders) folder += "/gemmd.sock";
  return folders;
}

std::string DefaultTarget() {
  if (std::string named = Environment("GEMMD_SERVER"); !named.empty()) return named;
  for (const std::string& path : DefaultSockets()) {
    if (IsSocket(path)) return absl::StrCat("unix:", path);
  }
  return kDefaultTcpTarget;
}

}  // namespace gemmd::client
