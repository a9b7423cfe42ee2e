#include "kernels/cuda/device/host_node.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gemmd::kernels::cuda {
namespace {

// First and last, both in it.
using CpuRange = std::pair<int, int>;

// Empty when there is no such file.
std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return std::string(absl::StripAsciiWhitespace(text));
}

// Becomes part of a path.
bool IsBusId(absl::string_view id) {
  return !id.empty() && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.';
  });
}

// Digits alone, unlike SimpleAtoi.
std::optional<int> Number(absl::string_view text) {
  int number = 0;
  const bool digits = std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(text, &number)) return std::nullopt;
  return number;
}

// "0-3,8,10-11". Nothing for a list with a part that is neither a number nor a range.
std::vector<CpuRange> ParseCpuList(absl::string_view list) {
  std::vector<CpuRange> ranges;
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    const bool range = ends.first.size() < part.size();
    const std::optional<int> first = Number(ends.first);
    const std::optional<int> last = range ? Number(ends.second) : first;
    if (!first.has_value() || !last.has_value() || *first > *last) return {};
    ranges.emplace_back(*first, *last);
  }
  return ranges;
}

}  // namespace

std::vector<int> UsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

HostNode FindHostNode(absl::string_view pci_bus_id, const std::vector<int>& usable,
                      const std::string& sysfs) {
  if (!IsBusId(pci_bus_id)) return {};
  // "-1" is the kernel's word for none, and no number here.
  const std::optional<int> node = Number(Contents(
      absl::StrCat(sysfs, "/bus/pci/devices/", absl::AsciiStrToLower(pci_bus_id), "/numa_node")));
  if (!node.has_value()) return {};
  const std::vector<CpuRange> ranges =
      ParseCpuList(Contents(absl::StrCat(sysfs, "/devices/system/node/node", *node, "/cpulist")));
  HostNode found;
  std::copy_if(usable.begin(), usable.end(), std::back_inserter(found.cpus), [&](int cpu) {
    return std::any_of(ranges.begin(), ranges.end(), [cpu](const CpuRange& range) {
      return range.first <= cpu && cpu <= range.second;
    });
  });
  if (!found.cpus.empty()) found.node = *node;
  return found;
}

absl::Status BindToNode(const HostNode& node) {
  if (node.cpus.empty()) return absl::OkStatus();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : node.cpus) CPU_SET(cpu, &set);  // leaves out what is beyond the set
  const int error = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  if (error == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("binding a thread to the ", node.cpus.size(), " usable cpus of NUMA node ",
                   node.node, " failed: ", std::strerror(error),
                   "; let the process call sched_setaffinity, or set no_numa_binding"));
}

absl::Status RunOnNode(const HostNode& node, absl::FunctionRef<void()> work) {
  absl::Status bound;
  if (node.cpus.empty()) {
    work();
    return bound;
  }
  std::thread thread;
  try {
    thread = std::thread([&] {
      bound = BindToNode(node);
      work();
    });
  } catch (const std::system_error& error) {  // the process may have no more threads
    work();
    return absl::FailedPreconditionError(absl::StrCat("starting a thread on NUMA node ", node.node,
                                                      " failed: ", error.what(),
                                                      "; raise the process's limit of threads"));
  }
  thread.join();
  return bound;
}

}  // namespace gemmd::kernels::cuda
