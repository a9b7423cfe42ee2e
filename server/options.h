// gemmd's command line.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gemmd::server {

struct Options {
  std::string program;  // argv[0]
  std::string config;
  int config_fd = -1;  // what to start with, in place of what `config` has now
  std::vector<std::string> listen;
  std::string device;  // serve this one alone; empty: all of the config's
  bool supervise = false;
  bool check = false;
  bool print_config = false;
  std::string ready_file;
  int ready_fd = -1;
};

// To stdout. An exit status: whoever asked for a text and has it not whole is told by stderr too.
int Print(absl::string_view text);

// Exits on --help, --version and misuse.
Options ParseOptions(int argc, char** argv);

// The command line of the process that serves `device` alone, for a supervisor with `options`; it
// lacks --ready-fd and --config-fd.
std::vector<std::string> DeviceCommand(const Options& options, const std::string& device);

}  // namespace gemmd::server
