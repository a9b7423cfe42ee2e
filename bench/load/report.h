// What `gemmd_bench load` says about a run.

#pragma once

#include <string>

#include "bench/load/generator.h"
#include "bench/load/workload.h"
#include "client/cli/args/output.h"

namespace gemmd::bench {

struct BenchReport {
  std::string mode;
  std::string target;
  const LoadOptions& load;
  const WorkloadSpec& spec;
  const LoadReport& report;
  const LoadReport& echo;  // closed loop, the same concurrency, before and after
  const Workload& workload;
};

cli::Json BenchJson(const BenchReport& bench);
std::string BenchText(const BenchReport& bench);

}  // namespace gemmd::bench
