#include "kernels/cpu/device_info.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cgroup.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/matmul/model.h"
#include "kernels/text.h"

namespace gemmd::kernels::cpu {
namespace {

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
  if (const double quota = ReadCgroupLimits().cpus; quota > 0) {
    cores = std::min(cores, static_cast<int>(std::ceil(quota)));
  }
  return std::max(cores, 1);
}

int64_t UsableMemory() {
  const int64_t total = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const int64_t limit = ReadCgroupLimits().memory_bytes;
  return limit > 0 ? std::min(total, limit) : total;
}

DeviceInfo DescribeCpu(const std::string& name, int threads, int64_t memory_bytes) {
  DeviceInfo info;
  info.name = name;
  info.model = absl::StrCat(ModelName(), ", ", threads, threads == 1 ? " thread" : " threads");
  info.architecture = Architecture();
  info.memory_bytes = memory_bytes > 0 ? memory_bytes : UsableMemory() / 2;
  const Machine machine = MachineFor(threads);
  info.peak_flops.fill(machine.sgemm_flops);  // every kernel here multiplies in FP32
  info.memory_bytes_per_s = machine.memory_bytes_per_s;
  return info;
}

}  // namespace gemmd::kernels::cpu
