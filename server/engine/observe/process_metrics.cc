#include "server/engine/observe/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gemmd::server {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// "btime 1700000000" of /proc/stat: when the machine booted.
bool BootSeconds(const std::string& proc, double* seconds) {
  for (absl::string_view line : absl::StrSplit(ReadAll(proc + "/stat"), '\n')) {
    if (absl::ConsumePrefix(&line, "btime ")) return absl::SimpleAtod(line, seconds);
  }
  return false;
}

// -1 when the folder cannot be read.
int64_t CountDescriptors(const std::string& proc) {
  std::error_code error;
  std::filesystem::directory_iterator entries(proc + "/self/fd", error);
  if (error) return -1;
  int64_t count = 0;
  for (; entries != std::filesystem::directory_iterator() && !error; entries.increment(error)) {
    ++count;
  }
  return count - 1;  // less the one that reads the folder
}

}  // namespace

absl::StatusOr<ProcessStat> ParseStat(const std::string& text, double ticks_per_second,
                                      double page_bytes) {
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return absl::InvalidArgumentError("no command's name in it");
  // The third field, the state, comes first here: see proc(5).
  std::istringstream fields(text.substr(bracket + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0, start = 0, resident = 0;
  int64_t threads = 0;
  fields >> user >> system >> skipped >> skipped >> skipped >> skipped >> threads;
  fields >> skipped >> start >> skipped >> resident;
  if (!fields) return absl::InvalidArgumentError("fewer than 24 fields");
  return ProcessStat{.cpu_seconds = (user + system) / ticks_per_second,
                     .resident_bytes = resident * page_bytes,
                     .threads = threads,
                     .start_seconds = start / ticks_per_second};
}

void ReadProcess(const std::string& proc, Families& families) {
  const auto stat =
      ParseStat(ReadAll(proc + "/self/stat"), static_cast<double>(sysconf(_SC_CLK_TCK)),
                static_cast<double>(sysconf(_SC_PAGESIZE)));
  if (stat.ok()) {
    families
        .Counter("process_cpu_seconds_total",
                 "Seconds of CPU time used, user and system, by every thread.")
        .Add({}, stat->cpu_seconds);
    families.Gauge("process_resident_memory_bytes", "Bytes of memory resident.")
        .Add({}, stat->resident_bytes);
    families.Gauge("process_threads", "Threads.").Add({}, static_cast<double>(stat->threads));
    double boot = 0;
    if (BootSeconds(proc, &boot)) {
      families
          .Gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
          .Add({}, boot + stat->start_seconds);
    }
  }
  if (const int64_t open = CountDescriptors(proc); open >= 0) {
    families.Gauge("process_open_fds", "File descriptors open.").Add({}, static_cast<double>(open));
  }
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    families.Gauge("process_max_fds", "File descriptors that the process may have open.")
        .Add({}, static_cast<double>(limit.rlim_cur));
  }
}

}  // namespace gemmd::server
