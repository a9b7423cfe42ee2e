#include "bench/serving/daemon_process.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace gemmd::bench {
namespace {

absl::StatusOr<std::string> ReadProc(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  if (!in || text.str().empty()) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return text.str();
}

}  // namespace

absl::StatusOr<ProcessUse> UseOf(pid_t pid) {
  const std::string proc = absl::StrCat("/proc/", pid);
  absl::StatusOr<std::string> stat = ReadProc(absl::StrCat(proc, "/stat"));
  if (!stat.ok()) return stat.status();
  // Fields count from behind the name, which may hold anything: the first there is the state, the
  // third of the whole line.
  const size_t behind_name = stat->rfind(") ");
  if (behind_name == std::string::npos) {
    return absl::InternalError(absl::StrCat(proc, "/stat is not as expected"));
  }
  std::istringstream fields(stat->substr(behind_name + 2));
  std::string skipped;
  int64_t user_ticks = 0, system_ticks = 0, resident_pages = 0;
  ProcessUse use;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  fields >> user_ticks >> system_ticks;  // 14, 15
  for (int i = 16; i < 20; ++i) fields >> skipped;
  fields >> use.threads;  // 20
  for (int i = 21; i < 24; ++i) fields >> skipped;
  fields >> resident_pages;  // 24
  if (!fields) return absl::InternalError(absl::StrCat(proc, "/stat is shorter than expected"));
  use.cpu_seconds =
      static_cast<double>(user_ticks + system_ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
  use.resident_bytes = resident_pages * sysconf(_SC_PAGESIZE);
  std::error_code error;
  for (std::filesystem::directory_iterator it(absl::StrCat(proc, "/fd"), error), end;
       !error && it != end; it.increment(error)) {
    ++use.descriptors;
  }
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot look into ", proc, "/fd: ", error.message(), "; run as its user"));
  }
  return use;
}

absl::StatusOr<pid_t> ListenerOf(const std::string& address) {
  absl::string_view name = address;
  sockaddr_un to = {};
  to.sun_family = AF_UNIX;
  const bool is_abstract = absl::ConsumePrefix(&name, "unix-abstract:");
  if (!is_abstract && !absl::ConsumePrefix(&name, "unix:")) {
    return absl::UnavailableError(
        absl::StrCat("'", address, "' is no Unix socket: the daemon may be on another host"));
  }
  // An abstract name begins with a zero byte and ends with the address, not with one.
  if (name.empty() || name.size() + 1 >= sizeof(to.sun_path)) {
    return absl::UnavailableError(absl::StrCat("'", address, "' is no address of a socket"));
  }
  std::memcpy(to.sun_path + (is_abstract ? 1 : 0), name.data(), name.size());
  const socklen_t length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), length) != 0) {
    return absl::UnavailableError(
        absl::StrCat("nobody of this host listens on ", address, ": ", std::strerror(errno)));
  }
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("who listens on ", address));
  }
  if (peer.pid <= 0) {
    return absl::UnavailableError(
        absl::StrCat("who listens on ", address, " is in another process namespace"));
  }
  return peer.pid;
}

}  // namespace gemmd::bench
