#include "tests/e2e/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "absl/time/clock.h"

namespace gemmd::e2e {
namespace {

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

int OpenFor(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) Die(path.c_str());
  return fd;
}

}  // namespace

TempDir::TempDir() {
  // Short: a Unix socket's path has 108 bytes.
  std::string name = std::filesystem::temp_directory_path().string() + "/gemmd.XXXXXX";
  if (mkdtemp(name.data()) == nullptr) Die("mkdtemp");
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Process Process::Start(const std::vector<std::string>& argv, const std::string& dir) {
  static std::atomic<int> counter{0};
  const std::string suffix = std::to_string(counter++);
  Process process;
  process.out_path_ = dir + "/stdout." + suffix;
  process.err_path_ = dir + "/stderr." + suffix;
  const int out = OpenFor(process.out_path_);
  const int err = OpenFor(process.err_path_);
  const std::string program = FindProgram(argv[0]);
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);

  const pid_t parent = getpid();
  process.pid_ = fork();
  if (process.pid_ < 0) Die("fork");
  if (process.pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // the parent died before prctl
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(out, 1);
    dup2(err, 2);
    execv(program.c_str(), args.data());
    _exit(127);
  }
  close(out);
  close(err);
  process.pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, process.pid_, 0));
  if (process.pidfd_ < 0) Die("pidfd_open");
  return process;
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      status_(other.status_),
      out_path_(std::move(other.out_path_)),
      err_path_(std::move(other.err_path_)) {}

Process::~Process() {
  if (pid_ < 0) return;
  if (!status_.has_value()) {
    Signal(SIGKILL);
    Wait(absl::InfiniteDuration());
  }
  close(pidfd_);
}

void Process::Signal(int number) const {
  if (!status_.has_value()) kill(pid_, number);
}

std::optional<int> Process::Wait(absl::Duration timeout) {
  if (status_.has_value()) return status_;
  pollfd ended = {pidfd_, POLLIN, 0};
  const int64_t ms = absl::ToInt64Milliseconds(timeout);
  const int limit = timeout == absl::InfiniteDuration() ? -1 : static_cast<int>(ms);
  if (poll(&ended, 1, limit) <= 0) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) Die("waitpid");
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return status_;
}

std::string Process::out() const { return ReadFile(out_path_); }
std::string Process::err() const { return ReadFile(err_path_); }

Finished RunToEnd(const std::vector<std::string>& argv, absl::Duration timeout) {
  TempDir dir;
  Process process = Process::Start(argv, dir.path());
  Finished finished;
  finished.status = process.Wait(timeout).value_or(-1);
  finished.out = process.out();
  finished.err = process.err();
  return finished;
}

std::string FindProgram(const std::string& built) {
  std::error_code error;
  const std::filesystem::path name = std::filesystem::path(built).filename();
  if (const char* folder = std::getenv("GEMMD_TEST_PROGRAMS")) {
    const std::filesystem::path other = std::filesystem::path(folder) / name;
    if (std::filesystem::exists(other, error)) return other.string();
  }
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = self.parent_path() / name;
  return !error && std::filesystem::exists(beside, error) ? beside.string() : built;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  // By way of a stream, which keeps to itself what an iterator throws: a process may end while its
  // file in /proc is read.
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  if (!out.flush()) Die(path.c_str());
}

bool WaitUntil(const std::function<bool()>& condition, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

ProcessUse UseOf(pid_t pid) {
  const std::string proc = "/proc/" + std::to_string(pid);
  ProcessUse use;
  std::ifstream status(proc + "/status");
  std::string key;
  while (status >> key) {
    if (key == "VmRSS:") {
      status >> use.resident_bytes;
      use.resident_bytes *= 1024;
    } else if (key == "Threads:") {
      status >> use.threads;
    }
    status.ignore(4096, '\n');
  }
  std::error_code error;
  for (std::filesystem::directory_iterator it(proc + "/fd", error), end; it != end; ++it) {
    ++use.descriptors;
  }
  return use;
}

}  // namespace gemmd::e2e
