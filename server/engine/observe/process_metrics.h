// The process as the kernel sees it, by the names that every Prometheus dashboard knows:
// process_cpu_seconds_total, process_resident_memory_bytes, process_open_fds, process_max_fds,
// process_threads, process_start_time_seconds. Read at each scrape; what cannot be read is left
// out.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/engine/observe/exposition.h"

namespace gemmd::server {

// What /proc/<pid>/stat tells of the process.
struct ProcessStat {
  double cpu_seconds = 0;  // user and system, every thread
  double resident_bytes = 0;
  int64_t threads = 0;
  double start_seconds = 0;  // since the machine's boot
};

// `text` is the whole file; `ticks_per_second` and `page_bytes` are sysconf's. The command's name
// in it may hold anything, brackets and spaces included. INVALID_ARGUMENT when fields are missing.
absl::StatusOr<ProcessStat> ParseStat(const std::string& text, double ticks_per_second,
                                      double page_bytes);

// `proc` is /proc.
void ReadProcess(const std::string& proc, Families& families);

}  // namespace gemmd::server
