#include "client/armed/daemon_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace gemmd::armed {
namespace {

constexpr char kPath[] = "unix:";
constexpr char kAbstract[] = "unix-abstract:";

bool StartsWith(const std::string& text, const char* prefix) {
  return text.compare(0, std::strlen(prefix), prefix) == 0;
}

// The file of a "unix:" address; empty for others.
std::string FileOf(const std::string& address) {
  return StartsWith(address, kPath) ? address.substr(std::strlen(kPath)) : std::string();
}

uint64_t InodeOf(const std::string& address) {
  const std::string file = FileOf(address);
  struct stat found = {};
  return !file.empty() && stat(file.c_str(), &found) == 0 ? found.st_ino : 0;
}

// A connected socket, or -1 and errno.
int Connect(const std::string& address) {
  const bool abstract = StartsWith(address, kAbstract);
  const std::string name = abstract ? address.substr(std::strlen(kAbstract)) : FileOf(address);
  sockaddr_un target = {};
  target.sun_family = AF_UNIX;
  const size_t at = abstract ? 1 : 0;  // an abstract name follows a zero byte
  if (name.empty() || at + name.size() >= sizeof(target.sun_path)) {
    errno = EINVAL;
    return -1;
  }
  std::memcpy(target.sun_path + at, name.data(), name.size());
  // A full backlog would block: a daemon that cannot keep up with its socket lives all the same.
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const size_t size = offsetof(sockaddr_un, sun_path) + at + name.size();
  if (connect(fd, reinterpret_cast<const sockaddr*>(&target), static_cast<socklen_t>(size)) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// The process that listens at the other end, as a pidfd; -1 if it is in another PID namespace or
// the kernel has no pidfds.
int ProcessOf(int connection) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0)
    return -1;
  return static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
}

}  // namespace

DaemonWatch::~DaemonWatch() {
  if (process_ >= 0) close(process_);
}

Outcome DaemonWatch::Start(const std::string& address) {
  address_ = address;
  socket_file_ = InodeOf(address);
  const int connection = Connect(address);
  if (connection < 0) {
    return {Code::kUnavailable, "share socket " + address + ": connect: " + std::strerror(errno)};
  }
  process_ = ProcessOf(connection);
  close(connection);
  return {};
}

bool DaemonWatch::Lives(std::chrono::milliseconds most, int wake_fd) {
  pollfd polled[] = {{wake_fd, POLLIN, 0}, {process_, POLLIN, 0}};
  const int ready = poll(polled, 2, static_cast<int>(most.count()));
  if (process_ >= 0) return ready <= 0 || polled[1].revents == 0;
  return Answers();
}

bool DaemonWatch::Answers() const {
  const int connection = Connect(address_);
  if (connection < 0)
    return errno == EAGAIN || errno == EINTR || errno == EMFILE || errno == ENFILE;
  close(connection);
  return InodeOf(address_) == socket_file_;
}

}  // namespace gemmd::armed
