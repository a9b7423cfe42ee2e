// `gemmctl bench` of version 0.1: gemmd_bench does it now.

#ifndef GEMMD_CLIENT_CLI_MOVED_BENCH_H_
#define GEMMD_CLIENT_CLI_MOVED_BENCH_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace gemmd::cli {

// The command line of gemmd_bench that does what `gemmctl bench ARGS` did; `args` is what stands
// behind "bench". {"--suite", "floor", "--json"} gives {"gemmd_bench", "floor", "--json"}; without
// a suite it is "load".
std::vector<std::string> BenchCommandLine(absl::Span<char* const> args);

// If the line is `gemmctl bench ..` and gemmd_bench lies beside this program, it takes this
// process's place. Otherwise returns, and the table of commands tells where bench went.
void RunMovedBench(int argc, char** argv);

}  // namespace gemmd::cli

#endif  // GEMMD_CLIENT_CLI_MOVED_BENCH_H_
