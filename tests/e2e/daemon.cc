#include "tests/e2e/daemon.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace gemmd::e2e {
namespace {

constexpr size_t kLogShown = 16384;  // characters

}  // namespace

std::string TestDevice() {
  const char* device = std::getenv("GEMMD_TEST_DEVICE");
  return device == nullptr ? "cpu:0" : device;
}

std::string DeviceEntry(int threads) {
  const std::string device = TestDevice();
  const bool has_threads = device.rfind("cpu:", 0) == 0;
  return "devices { name: \"" + device + "\" memory_bytes: 1073741824 " +
         (has_threads ? "threads: " + std::to_string(threads) : "") + " }";
}

Daemon::Daemon(const DaemonOptions& options) : options_(options) {
  for (const auto& [name, text] : options_.files) WriteFile(dir_.File(name), Placed(text));
  WriteFile(dir_.File("gemmd.textproto"), ConfigText(options_.config));
  Start();
}

Daemon::~Daemon() {
  if (!testing::Test::HasFailure()) return;
  const std::optional<int> status = process_->Wait(absl::ZeroDuration());
  const std::string text = log();
  std::fprintf(stderr, "gemmd %s; the end of its log:\n%s\n",
               status ? absl::StrCat("has ended with ", *status).c_str() : "still runs",
               text.substr(text.size() - std::min(text.size(), kLogShown)).c_str());
}

void Daemon::Start() {
  const std::string ready = dir_.File("ready");
  std::remove(ready.c_str());
  std::vector<std::string> command = options_.launcher;
  const bool direct = command.empty() && options_.log_to.empty();
  const std::string program = direct ? GEMMD_PATH : FindProgram(GEMMD_PATH);
  command.insert(command.end(),
                 {program, "--config", dir_.File("gemmd.textproto"), "--ready-file", ready});
  if (!options_.log_to.empty()) {
    command.insert(command.begin(), {"/bin/sh", "-c", "exec \"$@\" 2>\"$0\"", options_.log_to});
  }
  process_ = std::make_unique<Process>(Process::Start(command, dir_.path()));
  const bool up =
      WaitUntil([&] { return !ReadFile(ready).empty() || !process_->running(); }, absl::Minutes(1));
  if (!up || !process_->running()) {
    std::fprintf(stderr, "gemmd does not serve; its log:\n%s\n", log().c_str());
    std::abort();
  }
  addresses_.clear();
  std::istringstream lines(ReadFile(ready));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("metrics ", 0) == 0) {
      metrics_address_ = line.substr(8);
    } else {
      addresses_.push_back(line);
    }
  }
}

std::string Daemon::ConfigText(const std::string& extra) const {
  std::string text = options_.drain + "\n" + options_.devices + "\n";
  text += "metrics { address: \"127.0.0.1:0\" }\n";
  text += "listeners { address: \"127.0.0.1:0\" }\n";
  text += "listeners { address: \"" + target() + "\" }\n";
  for (const std::string& tenant : options_.tenants) {
    text += "listeners { address: \"" + target(tenant) + "\" tenant: \"" + tenant + "\" }\n";
  }
  return text + Placed(extra) + "\n";
}

std::string Daemon::Placed(const std::string& text) const {
  return absl::StrReplaceAll(text, {{"@DIR@", dir_.path()}});
}

std::string Daemon::target(const std::string& tenant) const {
  return "unix:" + dir_.File(tenant + ".sock");
}

std::string Daemon::LogWith(const std::string& text) const {
  WaitUntil([&] { return log().find(text) != std::string::npos; });
  return log();
}

void Daemon::Reload(const std::string& config) {
  WriteFile(dir_.File("gemmd.textproto"), ConfigText(config));
  process_->Signal(SIGHUP);
}

std::optional<int> Daemon::Stop(absl::Duration timeout) {
  process_->Signal(SIGTERM);
  return process_->Wait(timeout);
}

Holdings HoldingsOf(const Daemon& daemon) {
  const Samples samples = daemon.Metrics();
  return {.sessions = Sum(samples, "gemmd_sessions"),
          .buffers = Sum(samples, "gemmd_buffers"),
          .buffer_bytes = Sum(samples, "gemmd_buffer_bytes"),
          .plans = Sum(samples, "gemmd_plans"),
          .streams = Sum(samples, "gemmd_streams"),
          .programs = Sum(samples, "gemmd_programs"),
          .queued_seconds = Sum(samples, "gemmd_queued_device_seconds")};
}

void PrintTo(const Holdings& h, std::ostream* out) {
  *out << h.sessions << " sessions, " << h.buffers << " buffers of " << h.buffer_bytes << " B, "
       << h.plans << " plans, " << h.streams << " streams, " << h.programs << " programs of "
       << h.queued_seconds << " s";
}

}  // namespace gemmd::e2e
