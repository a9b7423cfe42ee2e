#include "kernels/cpu/cgroup.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gemmd::kernels::cpu {
namespace {

// A v1 hierarchy without a limit says a number near 2^63, rounded to pages.
constexpr int64_t kUnlimited = int64_t{1} << 60;

// A mounted hierarchy of groups: proc(5), /proc/PID/mountinfo.
struct Mount {
  std::string group;   // of the hierarchy, that is mounted: "/" or, in a container, "/docker/5f3a"
  std::string folder;  // where
  bool v2 = false;
  std::vector<std::string> controllers;  // v1: "memory", "cpu", "cpuacct"
};

// "/a/b/../c" and "//" become what they mean. A group outside of the namespace begins with "/..".
std::string Normal(const std::string& path) {
  std::vector<std::string> parts;
  for (const auto part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (part == "..") return "/";
    parts.emplace_back(part);
  }
  return absl::StrCat("/", absl::StrJoin(parts, "/"));
}

std::vector<Mount> ReadMounts(const std::string& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // "36 25 0:31 /group /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory"
    const size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string skipped, type, options;
    Mount mount;
    left >> skipped >> skipped >> skipped >> mount.group >> mount.folder;
    right >> type >> skipped >> options;
    if (type != "cgroup" && type != "cgroup2") continue;
    mount.v2 = type == "cgroup2";
    mount.controllers = absl::StrSplit(options, ',');
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

// The process's group by controller; of v2 under "".
std::map<std::string, std::string> ReadGroups(const std::string& root) {
  std::map<std::string, std::string> groups;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // "0::/user.slice/app.service", "5:cpu,cpuacct:/docker/5f3a"
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    for (const auto controller : absl::StrSplit(fields[1], ',')) {
      groups[std::string(controller)] = fields[2];
    }
  }
  return groups;
}

// The folders of `group` and of all above it, up to the mount's own. Of a group that the mount does
// not show, which a container's may be, the mount's own.
std::vector<std::string> FoldersUpwards(const std::string& root, const Mount& mount,
                                        const std::string& group) {
  std::string path = Normal(group);
  const std::string top = Normal(mount.group);
  if (top != "/") {
    absl::string_view rest = path;
    path = absl::ConsumePrefix(&rest, top) && (rest.empty() || rest.front() == '/')
               ? Normal(std::string(rest))
               : "/";
  }
  std::vector<std::string> folders;
  for (; path.size() > 1; path.resize(path.rfind('/'))) {
    folders.push_back(absl::StrCat(root, mount.folder, path));
  }
  folders.push_back(absl::StrCat(root, mount.folder));
  return folders;
}

std::vector<std::string> Words(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; file >> word;) words.push_back(word);
  return words;
}

// The word at `index` of a file; 0 for "max", and where there is none.
int64_t Number(const std::vector<std::string>& words, size_t index) {
  int64_t number = 0;
  if (index >= words.size() || !absl::SimpleAtoi(words[index], &number)) return 0;
  return number < 0 || number > kUnlimited ? 0 : number;
}

int64_t MemoryBytes(const std::string& folder, bool v2) {
  return Number(Words(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes")), 0);
}

// Microseconds of time in a period of so many.
double Cpus(const std::string& folder, bool v2) {
  int64_t quota = 0, period = 0;
  if (v2) {
    const auto words = Words(folder + "/cpu.max");  // "max 100000", "200000 100000"
    quota = Number(words, 0);
    period = Number(words, 1);
  } else {
    quota = Number(Words(folder + "/cpu.cfs_quota_us"), 0);  // -1 for none
    period = Number(Words(folder + "/cpu.cfs_period_us"), 0);
  }
  return period > 0 ? static_cast<double>(quota) / static_cast<double>(period) : 0;
}

template <typename Limit>
void Tighten(Limit& limit, Limit by) {
  if (by > 0 && (limit == 0 || by < limit)) limit = by;
}

}  // namespace

CgroupLimits ReadCgroupLimits(const std::string& root) {
  const std::map<std::string, std::string> groups = ReadGroups(root);
  CgroupLimits limits;
  for (const Mount& mount : ReadMounts(root)) {
    const auto visit = [&](const std::string& controller, auto look) {
      const bool here = mount.v2 || std::find(mount.controllers.begin(), mount.controllers.end(),
                                              controller) != mount.controllers.end();
      const auto group = groups.find(mount.v2 ? "" : controller);
      if (!here || group == groups.end()) return;
      for (const std::string& folder : FoldersUpwards(root, mount, group->second)) look(folder);
    };
    visit("memory", [&](const std::string& folder) {
      Tighten(limits.memory_bytes, MemoryBytes(folder, mount.v2));
    });
    visit("cpu", [&](const std::string& folder) { Tighten(limits.cpus, Cpus(folder, mount.v2)); });
  }
  return limits;
}

}  // namespace gemmd::kernels::cpu
