#include "server/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/exit_status.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr char kThisProgram[] = "/proc/self/exe";

absl::Status Cannot(const char* what) {
  return absl::UnavailableError(absl::StrCat("cannot ", what, ": ", std::strerror(errno)));
}

// Between fork and exec: nothing here may take a lock or memory, which a thread that was not
// carried over may have held.
[[noreturn]] void Become(char* const* argv, pid_t parent, int ready_fd, int config_fd) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kFailed);  // it died before prctl, and nobody would tell
  setpgid(0, 0);
  fcntl(ready_fd, F_SETFD, 0);  // stay open
  fcntl(config_fd, F_SETFD, 0);
  execv(kThisProgram, argv);
  _exit(kFailed);
}

// A file without a name that gives `text`.
absl::StatusOr<int> FileOf(std::string_view text) {
  const int fd = memfd_create("gemmd config", MFD_CLOEXEC);
  if (fd < 0) return Cannot("make a file in memory");
  while (!text.empty()) {
    const ssize_t put = write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const absl::Status error = Cannot("write a file in memory");
      close(fd);
      return error;
    }
    text.remove_prefix(static_cast<size_t>(put));
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(std::vector<std::string> command,
                                                 std::string_view config) {
  GEMMD_ASSIGN_OR_RETURN(const int config_fd, FileOf(config));
  const absl::Cleanup close_config = [&] { close(config_fd); };
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return Cannot("make a pipe");
  fcntl(ready[0], F_SETFL, O_NONBLOCK);
  command.insert(command.end(),
                 {"--ready-fd", absl::StrCat(ready[1]), "--config-fd", absl::StrCat(config_fd)});
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(argv.data(), parent, ready[1], config_fd);
  const absl::Status error = pid < 0 ? Cannot("fork") : absl::OkStatus();
  close(ready[1]);
  if (error.ok()) return ChildProcess(pid, ready[0]);
  close(ready[0]);
  return error;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(other.pid_),
      ready_fd_(std::exchange(other.ready_fd_, -1)),
      ready_(std::move(other.ready_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(ready_fd_, other.ready_fd_);
  std::swap(ready_, other.ready_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (ready_fd_ >= 0) close(ready_fd_);
}

void ChildProcess::Signal(int number) const { kill(pid_, number); }

std::optional<std::string> ChildProcess::TakeReady() {
  while (ready_fd_ >= 0) {
    char bytes[4096];
    const ssize_t got = read(ready_fd_, bytes, sizeof(bytes));
    if (got > 0) {
      ready_.append(bytes, static_cast<size_t>(got));
    } else if (got == 0) {
      close(std::exchange(ready_fd_, -1));
      if (!ready_.empty()) return std::move(ready_);
    } else if (errno != EINTR) {
      break;  // EAGAIN: not yet
    }
  }
  return std::nullopt;
}

std::optional<ChildEnd> ChildProcess::TakeEnd() {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  if (WIFSIGNALED(status)) return ChildEnd{.signal = WTERMSIG(status)};
  return ChildEnd{.status = WEXITSTATUS(status)};
}

}  // namespace gemmd::server
