#include "server/engine/share/unix_listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

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

// `name` for messages: the file's path, or the abstract name.
absl::Status Errno(const UnixListenerOptions& options, const char* what, const std::string& name) {
  return absl::UnavailableError(
      absl::StrCat(options.field, ": ", what, " ", name, ": ", std::strerror(errno)));
}

absl::Status Occupied(const UnixListenerOptions& options, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(options.field, ": ", options.path, what));
}

absl::Status Foreign(const UnixListenerOptions& options, uid_t owner) {
  return Occupied(options, absl::StrCat(" is a socket of user ", owner,
                                        ", which this one may not replace; have it removed if "
                                        "nobody serves there, or choose another address"));
}

UniqueFd NewSocket() {
  return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Servers that start in one folder at once take turns until each listens: else one takes the
// other's new file for what a dead one left. Whoever else has the folder locked delays the start
// and no more.
class Turn {
 public:
  explicit Turn(const std::string& path) {
    const std::string folder = std::filesystem::path(path).parent_path();
    folder_ =
        UniqueFd(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const absl::Time end = absl::Now() + kMostWait;
    while (folder_.valid() && flock(folder_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK || absl::Now() >= end) return;
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

 private:
  static constexpr absl::Duration kMostWait = absl::Seconds(2);
  UniqueFd folder_;  // closing it ends the lock
};

// A file in the way is removed only when it is a socket that nobody accepts on.
absl::Status RemoveStale(const UnixListenerOptions& options) {
  const std::string& path = options.path;
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Errno(options, "cannot look at", path);
  }
  if (!S_ISSOCK(file.st_mode)) {
    return Occupied(options, " exists and is not a socket; remove it or choose another");
  }
  const UniqueFd probe = NewSocket();
  const Address address = MakeAddress(path);
  // A server with a full backlog answers EAGAIN: it lives.
  if (connect(probe.get(), address.get(), address.bytes) == 0 || errno == EAGAIN) {
    return Occupied(options, " is in use by a running server; stop it or choose another path");
  }
  // Whether anybody accepts there is known to those alone who may write to it.
  if (errno == EACCES) return Foreign(options, file.st_uid);
  if (errno != ECONNREFUSED && errno != ENOENT) return Errno(options, "cannot connect to", path);
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return errno == EPERM ? Foreign(options, file.st_uid) : Errno(options, "cannot remove", path);
}

absl::Status BindPath(int fd, const UnixListenerOptions& options) {
  const std::string& path = options.path;
  const Address address = MakeAddress(path);
  // The file is created with the descriptor's mode less the umask: narrow from the first moment.
  if (fchmod(fd, options.mode) != 0) return Errno(options, "cannot set the mode of", path);
  if (bind(fd, address.get(), address.bytes) != 0) {
    if (errno != EADDRINUSE) return Errno(options, "cannot bind", path);
    GEMMD_RETURN_IF_ERROR(RemoveStale(options));
    if (bind(fd, address.get(), address.bytes) != 0) return Errno(options, "cannot bind", path);
  }
  if (chmod(path.c_str(), options.mode) != 0) {
    return Errno(options, "cannot set the mode of", path);
  }
  return absl::OkStatus();
}

std::string RandomName() {
  return absl::StrCat("gemmd-", absl::BytesToHexString(ToBytes(NewHandle())));
}

}  // namespace

UnixListener::UnixListener(UniqueFd fd, std::string address)
    : fd_(std::move(fd)), address_(std::move(address)) {}

UnixListener::UnixListener(UnixListener&& other) noexcept
    : fd_(std::move(other.fd_)),
      address_(std::move(other.address_)),
      path_(std::exchange(other.path_, "")),
      device_(other.device_),
      inode_(other.inode_) {}

UnixListener::~UnixListener() {
  if (path_.empty()) return;
  struct stat file;
  if (lstat(path_.c_str(), &file) != 0) return;
  if (file.st_dev == device_ && file.st_ino == inode_) unlink(path_.c_str());
}

absl::StatusOr<UnixListener> UnixListener::Bind(const UnixListenerOptions& options) {
  const std::string& path = options.path;
  const size_t bytes = std::max(path.size(), options.abstract_name.size());
  if (bytes >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.field, ": ", bytes, " bytes is above 107; choose a shorter one"));
  }
  UniqueFd fd = NewSocket();
  if (!fd.valid()) return Errno(options, "cannot make a socket for", path);
  if (path.empty()) {
    const std::string name = options.abstract_name.empty() ? RandomName() : options.abstract_name;
    const Address address = MakeAddress(std::string(1, '\0') + name);
    if (bind(fd.get(), address.get(), address.bytes) != 0) {
      return Errno(options, "cannot bind", name);
    }
    UnixListener listener(std::move(fd), absl::StrCat("unix-abstract:", name));
    if (listen(listener.fd(), SOMAXCONN) != 0) return Errno(options, "cannot listen on", name);
    return listener;
  }
  const Turn turn(path);
  GEMMD_RETURN_IF_ERROR(BindPath(fd.get(), options));
  UnixListener listener(std::move(fd), absl::StrCat("unix:", path));
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) return Errno(options, "cannot look at", path);
  listener.device_ = file.st_dev;
  listener.inode_ = file.st_ino;
  listener.path_ = path;
  if (listen(listener.fd(), SOMAXCONN) != 0) return Errno(options, "cannot listen on", path);
  return listener;
}

}  // namespace gemmd::server
