#include "tests/e2e/supervised.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace gemmd::e2e {
namespace {

// What /proc says of a process after its name, which may hold anything: state and parent first.
struct Stat {
  char state = 'X';
  pid_t parent = 0;
};
Stat StatOf(pid_t pid) {
  const std::string text = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  Stat stat;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return stat;
  std::istringstream rest(text.substr(name_end + 1));
  rest >> stat.state >> stat.parent;
  return stat;
}

}  // namespace

bool Runs(pid_t pid) {
  const char state = StatOf(pid).state;
  return state != 'X' && state != 'Z';
}

Supervised::Supervised(const std::string& devices, const std::string& config) : devices_(devices) {
  WriteFile(dir_.File("config"), ConfigText(config));
  process_ =
      std::make_unique<Process>(Process::Start({GEMMD_PATH, "--config", dir_.File("config"),
                                                "--supervise", "--ready-file", dir_.File("ready")},
                                               dir_.path()));
  const bool up =
      WaitUntil([&] { return !places().empty() || !process_->running(); }, absl::Minutes(1));
  if (up && process_->running()) return;
  std::fprintf(stderr, "gemmd does not serve; its log:\n%s\n", log().c_str());
  std::abort();
}

Supervised::~Supervised() {
  if (testing::Test::HasFailure()) std::fprintf(stderr, "gemmd's log:\n%s\n", log().c_str());
}

std::string Supervised::ConfigText(const std::string& config) const {
  return absl::StrCat("listeners { address: \"127.0.0.1:0\" }\nlisteners { address: \"unix:",
                      dir_.File("{device}.sock"), "\" }\n",
                      "metrics { address: \"127.0.0.1:0\" }\n", devices_, config, "\n");
}

std::string Supervised::target(const std::string& device) const {
  std::string name = device;
  std::replace(name.begin(), name.end(), ':', '-');
  return "unix:" + dir_.File(name + ".sock");
}

std::map<std::string, Place> Supervised::places() const {
  std::map<std::string, Place> places;
  Place* place = nullptr;
  std::istringstream lines(ReadFile(dir_.File("ready")));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("device ", 0) == 0) {
      place = &places[line.substr(7)];
    } else if (line.rfind("metrics ", 0) == 0) {
      place->metrics = line.substr(8);
    } else {
      place->addresses.push_back(line);
    }
  }
  return places;
}

pid_t Supervised::pid(const std::string& device) const {
  const std::string argument = absl::StrCat(std::string(1, '\0'), device, std::string(1, '\0'));
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || !Runs(pid) || StatOf(pid).parent != process_->pid()) continue;
    if (ReadFile(entry.path() / "cmdline").find(argument) != std::string::npos) return pid;
  }
  return 0;
}

void Supervised::Reload(const std::string& config) {
  WriteFile(dir_.File("config"), ConfigText(config));
  process_->Signal(SIGHUP);
}

std::optional<int> Supervised::Stop() {
  process_->Signal(SIGTERM);
  return process_->Wait(absl::Minutes(1));
}

}  // namespace gemmd::e2e
