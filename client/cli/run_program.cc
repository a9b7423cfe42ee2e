#include "client/cli/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace gemmd::cli {
namespace {

// Reads both pipes until both have ended; one after the other could leave the program stuck on a
// full one.
void ReadBoth(int out_fd, int error_fd, ProgramEnd& end) {
  pollfd fds[] = {{out_fd, POLLIN, 0}, {error_fd, POLLIN, 0}};
  std::string* const texts[] = {&end.out, &end.error};
  int open = 2;
  while (open > 0) {
    if (poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = read(fds[i].fd, buffer, sizeof(buffer));
      if (got > 0) {
        texts[i]->append(buffer, got);
      } else if (got == 0 || errno != EINTR) {
        fds[i].fd = -1;  // poll skips it from now on
        --open;
      }
    }
  }
}

}  // namespace

absl::StatusOr<ProgramEnd> RunProgram(const std::vector<std::string>& command) {
  int out[2], error[2];
  if (pipe2(out, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  if (pipe2(error, O_CLOEXEC) != 0) {
    close(out[0]);
    close(out[1]);
    return absl::ErrnoToStatus(errno, "cannot make a pipe");
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(error[1], STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);  // as a shell says "not found"
  }
  const int fork_errno = errno;
  close(out[1]);
  close(error[1]);
  ProgramEnd end;
  if (child > 0) ReadBoth(out[0], error[0], end);
  close(out[0]);
  close(error[0]);
  if (child < 0) return absl::ErrnoToStatus(fork_errno, "cannot start a process");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  end.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

}  // namespace gemmd::cli
