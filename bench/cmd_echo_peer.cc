#include <iostream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/floor/echo_server.h"
#include "bench/floor/kept_memory.h"
#include "bench/floor/sgemm.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/parser.h"

namespace gemmd::bench {
namespace {

constexpr cli::Positional kEchoPeerPositionals[] = {
    {.name = "ADDRESS", .help = "where to listen"},
};

// Prints where it listens, then answers a line "sgemm N REPEATS" with seconds or with what is
// wrong, until its input ends.
absl::Status RunEchoPeer(cli::Invocation& call) {
  KeepFreedMemory();
  absl::StatusOr<std::unique_ptr<EchoServer>> server = EchoServer::Start(call.args.Positional(0));
  if (!server.ok()) return cli::WithExit(cli::ExitCode::kInternal, server.status());
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

const cli::Command kEchoPeerCommand = {
    .name = "echo-peer",
    .summary = "the other side of 'load' and the suites: started by it, of no use alone",
    .positionals = kEchoPeerPositionals,
    .hidden = true,
    .run = RunEchoPeer};

}  // namespace gemmd::bench
