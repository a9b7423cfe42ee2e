// A program of the Python client's package, such as gemmd.bench.

#ifndef GEMMD_BENCH_FLOOR_RUN_PYTHON_H_
#define GEMMD_BENCH_FLOOR_RUN_PYTHON_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/args/output.h"

namespace gemmd::bench {

// How a Python client is started against the same server as this process's.
struct PythonClient {
  std::string interpreter;            // that has the package
  std::vector<std::string> security;  // flags of TLS and token
};

// `interpreter -m module arguments...`, and the JSON object that it prints. NOT_FOUND with its last
// line when it does not run or fails.
absl::StatusOr<cli::Json> RunPythonModule(const PythonClient& python, const std::string& module,
                                          const std::vector<std::string>& arguments);

}  // namespace gemmd::bench

#endif  // GEMMD_BENCH_FLOOR_RUN_PYTHON_H_
