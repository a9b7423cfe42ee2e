#include "bench/floor/run_python.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/cli/run_program.h"

namespace gemmd::bench {
namespace {

// The last line of what a program wrote: of a Python traceback, the error.
std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t newline = text.rfind('\n');
  return newline == text.npos ? text : text.substr(newline + 1);
}

// Beside an installed program, or where this one was built.
std::string ScriptOf(const std::string& name) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path installed =
      program.parent_path().parent_path() / "share" / "gemmd_bench" / name;
  if (!error && std::filesystem::exists(installed, error)) return installed.string();
  return absl::StrCat(GEMMD_BENCH_PYTHON, "/", name);
}

}  // namespace

absl::StatusOr<cli::Json> RunPythonBench(const PythonClient& python, const std::string& name,
                                         const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {python.interpreter, ScriptOf(name)};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  argv.insert(argv.end(), python.security.begin(), python.security.end());
  absl::StatusOr<cli::ProgramEnd> end = cli::RunProgram(argv);
  if (!end.ok()) return end.status();
  if (end->exit_status != 0) {
    return absl::NotFoundError(absl::StrCat("'", python.interpreter, " ", argv[1],
                                            "' ended with status ", end->exit_status, ": ",
                                            LastLine(end->error)));
  }
  cli::Json document = cli::Json::parse(end->out, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return absl::InternalError(absl::StrCat(name, " printed no JSON object"));
  }
  return document;
}

}  // namespace gemmd::bench
