// A real gemmd under test: started with its own folder, config and sockets; asked, signalled and
// ended by the test.
//
//   Daemon daemon({.config = "limits { max_buffers: 3 }"});
//   auto client = client::Client::Connect(daemon.target());

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/process.h"
#include "tests/e2e/scrape.h"

namespace gemmd::e2e {

// What the daemons under test run on: "cpu:0", or what GEMMD_TEST_DEVICE names ("cuda:0").
std::string TestDevice();
// It as a config's entry, with 1 GiB for buffers; `threads` are a CPU's.
std::string DeviceEntry(int threads = 2);

struct DaemonOptions {
  // Textproto added to the fixture's own, which has a Unix and a TCP listener of the tenant
  // "default", metrics on a free port, and what the fields below say.
  std::string config = "";
  // Tenants with a Unix socket each, found by target(tenant).
  std::vector<std::string> tenants = {};
  // Short: every test that stops a daemon waits for the notice.
  std::string drain = "drain { notice_ms: 50 limit_ms: 20000 }";
  std::string devices = DeviceEntry();
  // What starts it, instead of the test itself: {"/usr/bin/prlimit", "--nofile=96"}.
  std::vector<std::string> launcher = {};
  // Where its log goes, a FIFO for one; a file of the test's own unless given. A FIFO must have a
  // reader by then, and log() knows nothing of what is written there.
  std::string log_to = "";
  // Written into the daemon's folder before it starts. In the texts above and in these @DIR@ is
  // that folder.
  std::map<std::string, std::string> files = {};
};

class Daemon {
 public:
  // Returns when it serves; ends the test program, with its log, if it does not within a minute.
  explicit Daemon(const DaemonOptions& options = {});
  // When the test has failed, says what became of the daemon and what it logged.
  ~Daemon();

  // "unix:/tmp/gemmd.x/default.sock"
  std::string target(const std::string& tenant = "default") const;
  // "127.0.0.1:41234"
  const std::string& tcp_target() const { return addresses_.front(); }
  // Of the listeners that options.config adds, in its order.
  const std::string& listener(size_t index) const {
    return addresses_.at(2 + options_.tenants.size() + index);
  }

  Process& process() { return *process_; }
  // A running daemon's lines are there a moment after what they tell of.
  std::string log() const { return process_->err(); }
  // The log once it has `text`, or as it is after WaitUntil's patience.
  std::string LogWith(const std::string& text) const;
  const std::string& dir() const { return dir_.path(); }

  // Replaces the text that options.config gave and sends SIGHUP.
  void Reload(const std::string& config);
  const std::string& metrics_address() const { return metrics_address_; }
  Samples Metrics() const { return Scrape(metrics_address_); }
  double Metric(const std::string& name, const std::string& label = "") const {
    return Sum(Metrics(), name, label);
  }

  // Starts it again, once it has ended; ports may be others.
  void Start();
  // SIGTERM; the exit status, or nothing if it has not ended within `timeout`.
  std::optional<int> Stop(absl::Duration timeout = absl::Minutes(1));

 private:
  std::string ConfigText(const std::string& extra) const;
  std::string Placed(const std::string& text) const;  // with the folder in it

  DaemonOptions options_;
  TempDir dir_;
  std::unique_ptr<Process> process_;
  std::vector<std::string> addresses_;  // of the listeners, in the config's order
  std::string metrics_address_;
};

// What a daemon holds for its clients, by its own account. All zero in one that nobody uses.
struct Holdings {
  double sessions = 0;
  double buffers = 0;
  double buffer_bytes = 0;
  double plans = 0;
  double streams = 0;
  double programs = 0;
  double queued_seconds = 0;
  friend bool operator==(const Holdings&, const Holdings&) = default;
};
Holdings HoldingsOf(const Daemon& daemon);
void PrintTo(const Holdings& holdings, std::ostream* out);

}  // namespace gemmd::e2e
