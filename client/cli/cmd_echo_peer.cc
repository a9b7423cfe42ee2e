#include <iostream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/floor/echo_server.h"
#include "client/cli/floor/kept_memory.h"
#include "client/cli/floor/sgemm.h"

namespace gemmd::cli {
namespace {

constexpr Positional kPositionals[] = {
    {.name = "ADDRESS", .help = "where to listen"},
};

// Prints where it listens, then answers a line "sgemm N REPEATS" with seconds or with what is
// wrong, until its input ends.
absl::Status RunEchoPeer(Invocation& call) {
  KeepFreedMemory();
  absl::StatusOr<std::unique_ptr<EchoServer>> server = EchoServer::Start(call.args.Positional(0));
  if (!server.ok()) return WithExit(ExitCode::kInternal, server.status());
  std::cout << (*server)->target() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string word;
    int64_t n = 0;
    int repeats = 0;
    words >> word >> n >> repeats;
    if (word != "sgemm" || n <= 0 || repeats <= 0) {
      std::cout << "not a command: " << line << std::endl;
      continue;
    }
    absl::StatusOr<double> seconds = SgemmSeconds(n, repeats);
    std::cout << (seconds.ok() ? absl::StrCat(*seconds) : std::string(seconds.status().message()))
              << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace

const Command kEchoPeerCommand = {
    .name = "echo-peer",
    .summary = "the other side of 'bench': started by it, of no use alone",
    .positionals = kPositionals,
    .hidden = true,
    .run = RunEchoPeer};

}  // namespace gemmd::cli
