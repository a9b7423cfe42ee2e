// A child process with its output in files: what the end-to-end tests start, signal and wait for.
//
//   Process ctl = Process::Start({GEMMCTL_PATH, "info"}, dir.path());
//   EXPECT_EQ(ctl.Wait(absl::Seconds(10)), 0);
//   EXPECT_THAT(ctl.out(), HasSubstr("cpu:0"));

#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace gemmd::e2e {

// A folder of its own under TMPDIR, removed with all it holds.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Killed and reaped on destruction if it still runs; also killed by the kernel if the test dies.
class Process {
 public:
  // argv[0] by FindProgram. Output goes to `dir`/stdout.N and stderr.N. Ends the test program if it
  // cannot be started.
  static Process Start(const std::vector<std::string>& argv, const std::string& dir);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  // The exit status; 128 + n when signal n ended it; nothing when it still runs after `timeout`.
  std::optional<int> Wait(absl::Duration timeout);
  bool running() { return !Wait(absl::ZeroDuration()).has_value(); }

  std::string out() const;  // what it has written so far
  std::string err() const;

 private:
  Process() = default;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<int> status_;
  std::string out_path_;
  std::string err_path_;
};

// Start, Wait and the three results in one.
struct Finished {
  int status = -1;
  std::string out;
  std::string err;
};
Finished RunToEnd(const std::vector<std::string>& argv, absl::Duration timeout = absl::Minutes(2));

// The program of that name in the folder $GEMMD_TEST_PROGRAMS (another build's, such as a
// sanitizer's), else beside this one, as in a tree of scripts/dist.sh, else where it was built.
std::string FindProgram(const std::string& built);

std::string ReadFile(const std::string& path);  // "" when it does not exist
void WriteFile(const std::string& path, const std::string& text);

// Asks again and again until `condition` holds; false when `timeout` passes first, which is a
// failure and no measure of speed.
bool WaitUntil(const std::function<bool()>& condition, absl::Duration timeout = absl::Minutes(1));

// From /proc: resident bytes, open descriptors and threads of a process.
struct ProcessUse {
  int64_t resident_bytes = 0;
  int descriptors = 0;
  int threads = 0;
};
ProcessUse UseOf(pid_t pid);

}  // namespace gemmd::e2e
