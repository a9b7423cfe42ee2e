#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/args/output.h"
#include "client/cli/bench/resident.h"
#include "client/cli/floor/suite.h"
#include "client/cli/run_program.h"

namespace gemmd::cli {
namespace {

constexpr int kRounds = 2;

// The last line of what a program wrote: of a Python traceback, the error.
std::string LastLine(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t newline = text.rfind('\n');
  return newline == text.npos ? text : text.substr(newline + 1);
}

absl::StatusOr<double> PythonMicroseconds(const Floor& floor) {
  std::vector<std::string> argv = {floor.python, "-m",         "gemmd.bench",
                                   "--server",   floor.target, "--json"};
  argv.insert(argv.end(), floor.security.begin(), floor.security.end());
  absl::StatusOr<ProgramEnd> end = RunProgram(argv);
  if (!end.ok()) return end.status();
  if (end->exit_status != 0) {
    return absl::NotFoundError(absl::StrCat("'", floor.python,
                                            " -m gemmd.bench' ended with status ", end->exit_status,
                                            ": ", LastLine(end->error)));
  }
  const Json document = Json::parse(end->out, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("execute_tiny_p50_us") ||
      !document["execute_tiny_p50_us"].is_number()) {
    return absl::InternalError("gemmd.bench printed no execute_tiny_p50_us");
  }
  return document["execute_tiny_p50_us"].get<double>();
}

}  // namespace

absl::StatusOr<std::vector<Ratio>> MeasurePython(const Floor& floor) {
  absl::StatusOr<ResidentMatmul> tiny = MakeResident(floor.session, ResidentSpec());
  if (!tiny.ok()) return tiny.status();
  const auto cpp = [&]() -> absl::StatusOr<double> {
    absl::StatusOr<double> seconds = ExecuteTinySeconds(floor.session, tiny->ops);
    if (!seconds.ok()) return seconds;
    return *seconds * 1e6;
  };
  std::vector<Ratio> ratios;
  ratios.push_back(MeasureRatio(
      {.key = "python_execute_over_cpp_p50",
       .ours = "Python's Execute of a resident tiny matmul p50",
       .theirs = "C++'s",
       .unit = "us",
       .target = 1.6,
       .at_most = true},
      kRounds, [&] { return PythonMicroseconds(floor); }, cpp));
  return ratios;
}

}  // namespace gemmd::cli
