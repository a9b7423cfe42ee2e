// A program in bench/python, which measures the Python client.

#pragma once

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

// `interpreter bench/python/NAME arguments...`, and the JSON object that it prints. NOT_FOUND with
// its last line when it does not run or fails.
absl::StatusOr<cli::Json> RunPythonBench(const PythonClient& python, const std::string& name,
                                         const std::vector<std::string>& arguments);

}  // namespace gemmd::bench
