#include "server/places.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/config/address.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr absl::string_view kUnix = "unix:";

struct Place {
  absl::string_view what;  // "listener", or the field of the config
  std::string address;     // as the config has it
};

absl::Status Bad(const Place& place, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat(place.what, " ", place.address, ": ", why));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string SocketPath(const std::string& address) {
  return std::string(absl::StripPrefix(address, kUnix));
}

std::string Remedy(const std::string& folder) {
  return absl::StrCat("; make it and give it to user ", geteuid(), " ('install -d -o ", geteuid(),
                      " ", folder, "'), or choose another address");
}

bool InTmp(const std::string& folder) { return FolderOf(folder) == "/tmp"; }

// One below /tmp that somebody else may write to could hold somebody else's socket.
absl::Status CheckOwner(const Place& place, const std::string& folder) {
  struct stat info;
  if (!absl::StartsWith(folder, "/tmp/gemmd-")) return absl::OkStatus();
  if (lstat(folder.c_str(), &info) != 0) return absl::OkStatus();
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0) {
    return absl::OkStatus();
  }
  return Bad(place, absl::StrCat(folder, " is not a folder of user ", geteuid(),
                                 " alone (mode 0700); remove it, or set XDG_RUNTIME_DIR"));
}

absl::Status CheckFolder(const Place& place) {
  const std::string path = SocketPath(place.address);
  const std::string folder = FolderOf(path);
  struct stat info;
  const bool there = stat(path.c_str(), &info) == 0;
  if (there && !S_ISSOCK(info.st_mode)) {
    return Bad(place, absl::StrCat(path, " is there and is no socket; choose another address"));
  }
  if (there && access(path.c_str(), W_OK) != 0) {
    return Bad(place,
               absl::StrCat(path, " is a socket of user ", info.st_uid, ": ", std::strerror(errno),
                            "; have it removed if nobody serves there, or choose another "
                            "address"));
  }
  if (stat(folder.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) {
      return Bad(place, absl::StrCat(folder, " is no folder; choose another address"));
    }
    if (access(folder.c_str(), W_OK | X_OK) == 0) return CheckOwner(place, folder);
    return Bad(place, absl::StrCat("cannot write to its folder ", folder, ": ",
                                   std::strerror(errno), Remedy(folder)));
  }
  if (access(FolderOf(folder).c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return Bad(place, absl::StrCat("its folder ", folder, " is not there and cannot be made: ",
                                 std::strerror(errno), Remedy(folder)));
}

absl::Status MakeFolder(const Place& place) {
  const std::string folder = FolderOf(SocketPath(place.address));
  if (mkdir(folder.c_str(), InTmp(folder) ? 0700 : 0755) != 0 && errno != EEXIST) {
    return Bad(place, absl::StrCat("cannot make its folder ", folder, ": ", std::strerror(errno),
                                   Remedy(folder)));
  }
  return CheckFolder(place);
}

// OK where somebody listens already, which `in_use` tells.
absl::Status CheckBind(const Place& place, bool* in_use = nullptr) {
  const std::string& address = place.address;
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
      code != 0) {
    return Bad(place, absl::StrCat("cannot look its host up: ", gai_strerror(code)));
  }
  const auto free_found = absl::MakeCleanup([found] { freeaddrinfo(found); });
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Bad(place, absl::StrCat("no socket: ", std::strerror(errno)));
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(fd, found->ai_addr, found->ai_addrlen) == 0) return absl::OkStatus();
  if (errno == EADDRINUSE) {
    if (in_use != nullptr) *in_use = true;
    return absl::OkStatus();
  }
  return Bad(place, absl::StrCat("cannot bind it: ", std::strerror(errno),
                                 errno == EACCES ? "; choose a port above 1023"
                                                 : "; choose an address that this host has"));
}

// A socket that a killed daemon left refuses, and is replaced.
bool SomebodyListens(const std::string& path) {
  sockaddr_un address = {.sun_family = AF_UNIX};
  if (path.size() >= sizeof(address.sun_path)) return false;
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN;
  close(fd);
  return connected;
}

// The files of Unix sockets.
std::vector<Place> SocketsOf(const Config& config) {
  std::vector<Place> places;
  for (const ListenerConfig& listener : config.listeners) {
    if (IsUnixPath(listener.address)) places.push_back({"listener", listener.address});
  }
  if (!config.share.disabled && !config.share.socket_path.empty()) {
    places.push_back({"share.socket_path", config.share.socket_path});
  }
  return places;
}

}  // namespace

absl::Status MakeSocketFolders(const Config& config) {
  for (const Place& place : SocketsOf(config)) GEMMD_RETURN_IF_ERROR(MakeFolder(place));
  return absl::OkStatus();
}

absl::Status CheckPlaces(const Config& config) {
  for (const Place& place : SocketsOf(config)) GEMMD_RETURN_IF_ERROR(CheckFolder(place));
  for (const ListenerConfig& listener : config.listeners) {
    if (IsUnix(listener.address)) continue;
    GEMMD_RETURN_IF_ERROR(CheckBind({"listener", listener.address}));
  }
  return config.metrics_address.empty() ? absl::OkStatus()
                                        : CheckBind({"metrics.address", config.metrics_address});
}

std::vector<std::string> AddressesInUse(const Config& config) {
  std::vector<std::string> used;
  for (const Place& place : SocketsOf(config)) {
    if (SomebodyListens(SocketPath(place.address))) used.push_back(place.address);
  }
  std::vector<std::string> others;
  for (const ListenerConfig& listener : config.listeners) {
    if (!IsUnix(listener.address)) others.push_back(listener.address);
  }
  if (!config.metrics_address.empty()) others.push_back(config.metrics_address);
  for (const std::string& address : others) {
    bool in_use = false;
    (void)CheckBind({"address", address}, &in_use);
    if (in_use) used.push_back(address);
  }
  return used;
}

}  // namespace gemmd::server
