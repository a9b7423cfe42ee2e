// A gemmd --supervise under test: a process for each of two devices. Like Daemon, with a folder of
// its own.
//
//   Supervised gemmd(TwoDevices());
//   auto client = client::Client::Connect(gemmd.target("cpu:1"));

#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/process.h"

namespace gemmd::e2e {

// What a device's process says of itself in the ready file.
struct Place {
  std::vector<std::string> addresses;
  std::string metrics;
  friend bool operator==(const Place&, const Place&) = default;
};

class Supervised {
 public:
  // `devices` and `config` are textproto. Returns when all serve; ends the test program if they do
  // not within a minute.
  explicit Supervised(const std::string& devices, const std::string& config = "");
  // When the test has failed, shows the log.
  ~Supervised();

  // "unix:/tmp/gemmd.x/cpu-1.sock" of "cpu:1"
  std::string target(const std::string& device) const;
  // By device, of the ready file.
  std::map<std::string, Place> places() const;
  // Of the process that serves `device`; 0 when there is none.
  pid_t pid(const std::string& device) const;

  // The supervisor's own.
  Process& process() { return *process_; }
  std::string log() const { return process_->err(); }
  // Replaces the text that `config` was and sends SIGHUP.
  void Reload(const std::string& config);
  // SIGTERM; the exit status, or nothing if it has not ended within half a minute.
  std::optional<int> Stop();

 private:
  std::string ConfigText(const std::string& config) const;

  const std::string devices_;
  TempDir dir_;
  std::unique_ptr<Process> process_;
};

// Whether a process of this number works; one that waits to be reaped does not.
bool Runs(pid_t pid);

}  // namespace gemmd::e2e
