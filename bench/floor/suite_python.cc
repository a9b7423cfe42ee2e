#include <vector>

#include "bench/floor/suite.h"
#include "bench/load/resident.h"

namespace gemmd::bench {
namespace {

constexpr int kPythonRounds = 2;

absl::StatusOr<double> PythonMicroseconds(const Floor& floor) {
  absl::StatusOr<cli::Json> document =
      RunPythonBench(floor.python, "calls.py", {"--server", floor.target, "--json"});
  if (!document.ok()) return document.status();
  if (!document->contains("execute_tiny_p50_us") ||
      !(*document)["execute_tiny_p50_us"].is_number()) {
    return absl::InternalError("calls.py printed no execute_tiny_p50_us");
  }
  return (*document)["execute_tiny_p50_us"].get<double>();
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
      kPythonRounds, [&] { return PythonMicroseconds(floor); }, cpp));
  return ratios;
}

}  // namespace gemmd::bench
