#include "server/service_manager.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace gemmd::server {

absl::Status TellServiceManager(absl::string_view state) {
  const char* const named = std::getenv("NOTIFY_SOCKET");
  if (named == nullptr || *named == '\0') return absl::OkStatus();
  const absl::string_view name = named;
  sockaddr_un address = {.sun_family = AF_UNIX};
  if ((name[0] != '/' && name[0] != '@') || name.size() >= sizeof(address.sun_path)) {
    return absl::UnavailableError(absl::StrCat("NOTIFY_SOCKET '", name, "' is no Unix socket's"));
  }
  memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = '\0';  // of the abstract namespace
  const socklen_t size = offsetof(sockaddr_un, sun_path) + name.size() + (name[0] == '/' ? 1 : 0);
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool told = socket >= 0 && sendto(socket, state.data(), state.size(), MSG_NOSIGNAL,
                                          reinterpret_cast<const sockaddr*>(&address),
                                          size) == static_cast<ssize_t>(state.size());
  const int error = errno;
  if (socket >= 0) close(socket);
  if (told) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot tell '", state, "' to NOTIFY_SOCKET ", name, ": ", strerror(error)));
}

}  // namespace gemmd::server
