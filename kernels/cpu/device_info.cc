#include "kernels/cpu/device_info.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/model.h"
#include "kernels/text.h"

namespace gemmd::kernels::cpu {
namespace {

// "max 100000" or "200000 100000": microseconds of CPU per period. 0 means no limit.
int CgroupCores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  int64_t period_us = 0;
  int64_t quota_us = 0;
  if (!(file >> quota >> period_us) || !absl::SimpleAtoi(quota, &quota_us) || period_us <= 0) {
    return 0;
  }
  return static_cast<int>((quota_us + period_us - 1) / period_us);
}

int64_t CgroupMemoryBytes() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  std::string text;
  int64_t bytes = 0;
  return file >> text && absl::SimpleAtoi(text, &bytes) ? bytes : 0;
}

std::string ModelName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (absl::StartsWith(line, "model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

std::string Architecture() {
#if defined(__x86_64__)
  return BestIsa() == Isa::kBaseline ? "x86_64" : absl::StrCat("x86_64+", Text(Name(BestIsa())));
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

}  // namespace

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const int quota = CgroupCores(); quota > 0) cores = std::min(cores, quota);
  return std::max(cores, 1);
}

DeviceInfo DescribeCpu(const std::string& name, int threads, int64_t memory_bytes) {
  DeviceInfo info;
  info.name = name;
  info.model = absl::StrCat(ModelName(), ", ", threads, threads == 1 ? " thread" : " threads");
  info.architecture = Architecture();
  info.memory_bytes = memory_bytes;
  if (memory_bytes == 0) {
    int64_t total = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
    if (const int64_t limit = CgroupMemoryBytes(); limit > 0) total = std::min(total, limit);
    info.memory_bytes = total / 2;
  }
  const Machine machine = MachineFor(threads);
  info.peak_flops.fill(machine.sgemm_flops);  // every kernel here multiplies in FP32
  info.memory_bytes_per_s = machine.memory_bytes_per_s;
  return info;
}

}  // namespace gemmd::kernels::cpu
