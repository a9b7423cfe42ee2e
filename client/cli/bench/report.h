// What `gemmctl bench` says about a run.

#ifndef GEMMD_CLIENT_CLI_BENCH_REPORT_H_
#define GEMMD_CLIENT_CLI_BENCH_REPORT_H_

#include <string>

#include "client/cli/args/output.h"
#include "client/cli/bench/workload.h"
#include "client/cli/load/generator.h"

namespace gemmd::cli {

struct BenchReport {
  std::string mode;
  std::string target;
  const LoadOptions& load;
  const WorkloadSpec& spec;
  const LoadReport& report;
  const LoadReport& echo;  // closed loop, the same concurrency, before and after
  const Workload& workload;
};

Json BenchJson(const BenchReport& bench);
std::string BenchText(const BenchReport& bench);

}  // namespace gemmd::cli

#endif  // GEMMD_CLIENT_CLI_BENCH_REPORT_H_
