#include "bench/floor/peer_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gemmd::bench {

absl::StatusOr<std::unique_ptr<PeerProcess>> PeerProcess::Start(const std::string& daemon_target) {
  const std::string address = absl::StartsWith(daemon_target, "unix")
                                  ? absl::StrCat("unix-abstract:gemmd-bench-echo-", getpid())
                                  : "127.0.0.1:0";
  int down[2], up[2];
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0)
    return absl::ErrnoToStatus(errno, "cannot make a pipe");
  auto peer = absl::WrapUnique(new PeerProcess);
  const pid_t parent = getpid();
  peer->pid_ = fork();
  if (peer->pid_ < 0) return absl::ErrnoToStatus(errno, "cannot start a process");
  if (peer->pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // the parent died before the line above
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    execl("/proc/self/exe", "gemmd_bench", "echo-peer", address.c_str(), nullptr);
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  peer->to_child_ = down[1];
  peer->from_child_ = up[0];
  absl::StatusOr<std::string> target = peer->ReadLine();
  if (!target.ok()) return target.status();
  peer->target_ = *std::move(target);
  return peer;
}

PeerProcess::~PeerProcess() {
  if (to_child_ >= 0) close(to_child_);  // the end of its input ends it
  if (from_child_ >= 0) close(from_child_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);  // it owns nothing worth a goodbye
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::StatusOr<std::string> PeerProcess::ReadLine() {
  std::string line;
  for (char c = 0;;) {
    const ssize_t got = read(from_child_, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::InternalError("the echo peer ended early");
    if (c == '\n') return line;
    line.push_back(c);
  }
}

absl::StatusOr<double> PeerProcess::Sgemm(int64_t n, int repeats) {
  const std::string command = absl::StrCat("sgemm ", n, " ", repeats, "\n");
  if (write(to_child_, command.data(), command.size()) != static_cast<ssize_t>(command.size())) {
    return absl::InternalError("the echo peer does not listen");
  }
  absl::StatusOr<std::string> answer = ReadLine();
  if (!answer.ok()) return answer.status();
  double seconds = 0;
  if (absl::SimpleAtod(*answer, &seconds)) return seconds;
  return absl::NotFoundError(*answer);
}

}  // namespace gemmd::bench
