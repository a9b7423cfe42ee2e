// ChildProcess: another process of this program, which is given its config (--config-fd) and tells
// through a pipe (--ready-fd) that it serves.

#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/supervisor.h"

namespace gemmd::server {

// Move-only. Does not end the process when it goes, but the process is told to drain (SIGTERM) when
// this one dies, whatever it dies of.
class ChildProcess {
 public:
  // Runs the program that this process runs, be its file replaced since, with `command`, its name
  // first, a --ready-fd, and a --config-fd that gives `config`. From the main thread: the child is
  // told when the thread that started it is gone. It gets a process group of its own, so that a
  // terminal's Ctrl-C reaches it through us alone: a second SIGINT would cut its drain short.
  // UNAVAILABLE when there can be no process.
  static absl::StatusOr<ChildProcess> Start(std::vector<std::string> command,
                                            std::string_view config);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Not once TakeEnd has given the end: the number may be another process's by then.
  void Signal(int number) const;

  // What it wrote to its --ready-fd, once, when that is closed; nothing if it wrote nothing.
  std::optional<std::string> TakeReady();
  // Nothing while it runs.
  std::optional<ChildEnd> TakeEnd();

 private:
  ChildProcess(pid_t pid, int ready_fd) : pid_(pid), ready_fd_(ready_fd) {}
  pid_t pid_;
  int ready_fd_;  // the end that we read; -1 once it is closed
  std::string ready_;
};

}  // namespace gemmd::server
