#include "client/cli/moved_bench.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/strip.h"

namespace gemmd::cli {

std::vector<std::string> BenchCommandLine(absl::Span<char* const> args) {
  std::vector<std::string> line = {"gemmd_bench", "load"};
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view arg = args[i];
    if (arg == "--suite" && i + 1 < args.size()) {
      line[1] = args[++i];
    } else if (absl::ConsumePrefix(&arg, "--suite=")) {
      line[1] = std::string(arg);
    } else {
      line.emplace_back(arg);
    }
  }
  return line;
}

void RunMovedBench(int argc, char** argv) {
  if (argc < 2 || argv[1] != absl::string_view("bench")) return;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  std::vector<std::string> line =
      BenchCommandLine(absl::MakeConstSpan(argv + 2, static_cast<size_t>(argc - 2)));
  std::vector<char*> arguments;
  for (std::string& argument : line) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  execv((self.parent_path() / line[0]).c_str(), arguments.data());
}

}  // namespace gemmd::cli
