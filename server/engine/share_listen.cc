#include "server/engine/share_listen.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace gemmd::server {
namespace {

constexpr mode_t kMode = 0660;

struct Address {
  sockaddr_un socket = {};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket); }
};

// `name` is a path, or begins with a NUL for an abstract name; it fits, which the callers see to.
Address MakeAddress(const std::string& name) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  std::memcpy(address.socket.sun_path, name.data(), name.size());
  const bool abstract = name[0] == '\0';
  address.bytes = offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1);
  return address;
}

absl::Status Errno(const std::string& path, const char* what) {
  return absl::UnavailableError(
      absl::StrCat("share.socket_path: ", what, " ", path, ": ", std::strerror(errno)));
}

UniqueFd NewSocket() {
  return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// A file in the way is removed only when it is a socket that nobody accepts on.
absl::Status RemoveStale(const std::string& path) {
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Errno(path, "cannot look at");
  }
  if (!S_ISSOCK(file.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "share.socket_path: ", path, " exists and is not a socket; remove it or choose another"));
  }
  const UniqueFd probe = NewSocket();
  const Address address = MakeAddress(path);
  // A server with a full backlog answers EAGAIN: it lives.
  if (connect(probe.get(), address.get(), address.bytes) == 0 || errno == EAGAIN) {
    return absl::FailedPreconditionError(absl::StrCat(
        "share.socket_path: another server listens on ", path, "; stop it or choose another path"));
  }
  if (errno != ECONNREFUSED && errno != ENOENT) return Errno(path, "cannot connect to");
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return Errno(path, "cannot remove");
  return absl::OkStatus();
}

absl::Status BindPath(int fd, const std::string& path) {
  const Address address = MakeAddress(path);
  // The file is created with the descriptor's mode less the umask: narrow from the first moment.
  if (fchmod(fd, kMode) != 0) return Errno(path, "cannot set the mode of");
  if (bind(fd, address.get(), address.bytes) != 0) {
    if (errno != EADDRINUSE) return Errno(path, "cannot bind");
    if (absl::Status status = RemoveStale(path); !status.ok()) return status;
    if (bind(fd, address.get(), address.bytes) != 0) return Errno(path, "cannot bind");
  }
  if (chmod(path.c_str(), kMode) != 0) return Errno(path, "cannot set the mode of");
  return absl::OkStatus();
}

std::string RandomName() {
  return absl::StrCat("gemmd-", absl::BytesToHexString(ToBytes(NewHandle())));
}

}  // namespace

ShareListener::ShareListener(UniqueFd fd, std::string address)
    : fd_(std::move(fd)), address_(std::move(address)) {}

ShareListener::ShareListener(ShareListener&& other) noexcept
    : fd_(std::move(other.fd_)),
      address_(std::move(other.address_)),
      path_(std::exchange(other.path_, "")),
      device_(other.device_),
      inode_(other.inode_) {}

ShareListener::~ShareListener() {
  if (path_.empty()) return;
  struct stat file;
  if (lstat(path_.c_str(), &file) != 0) return;
  if (file.st_dev == device_ && file.st_ino == inode_) unlink(path_.c_str());
}

absl::StatusOr<ShareListener> ShareListener::Bind(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("share.socket_path: ", path.size(),
                                                   " bytes is above 107; choose a shorter path"));
  }
  UniqueFd fd = NewSocket();
  if (!fd.valid()) return Errno(path, "cannot make a socket for");
  if (path.empty()) {
    const std::string name = RandomName();
    const Address address = MakeAddress(std::string(1, '\0') + name);
    if (bind(fd.get(), address.get(), address.bytes) != 0) return Errno(name, "cannot bind");
    ShareListener listener(std::move(fd), absl::StrCat("unix-abstract:", name));
    if (listen(listener.fd(), SOMAXCONN) != 0) return Errno(name, "cannot listen on");
    return listener;
  }
  if (absl::Status status = BindPath(fd.get(), path); !status.ok()) return status;
  ShareListener listener(std::move(fd), absl::StrCat("unix:", path));
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) return Errno(path, "cannot look at");
  listener.device_ = file.st_dev;
  listener.inode_ = file.st_ino;
  listener.path_ = path;
  if (listen(listener.fd(), SOMAXCONN) != 0) return Errno(path, "cannot listen on");
  return listener;
}

}  // namespace gemmd::server
