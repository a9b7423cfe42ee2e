#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/config/convert.h"

namespace gemmd::server {
namespace {

constexpr size_t kMaxKernelNameBytes = 128;
constexpr int64_t kMaxThreads = 4096;

#ifdef GEMMD_HAVE_CUDA
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

// "cpu:0", "cpu:12": no sign, no leading zero. `prefix` is "cpu:".
bool IsNumbered(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return false;
  const std::string_view digits = name.substr(prefix.size());
  if (digits.empty() || digits.size() > 3 || (digits.size() > 1 && digits[0] == '0')) return false;
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool IsKernelName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxKernelNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  std::string_view("_.:/-").find(c) != std::string_view::npos;
         });
}

void CheckDeviceName(const std::string& path, const std::string& name,
                     absl::Span<const std::string> known_devices, Fields& fields) {
  if (known_devices.empty()) {
    if (IsNumbered("cpu:", name) || (kHasCuda && IsNumbered("cuda:", name))) return;
    return fields.Fail(path,
                       absl::StrCat(Quoted(name), " is not a device of this build, which has ",
                                    kHasCuda ? "CPU and CUDA devices; give cpu:0 or cuda:0"
                                             : "CPU devices only; give cpu:0"));
  }
  if (std::find(known_devices.begin(), known_devices.end(), name) != known_devices.end()) return;
  fields.Fail(path, absl::StrCat(Quoted(name), " is not a device of this machine; give one of ",
                                 absl::StrJoin(known_devices, ", ")));
}

void CheckTuningFile(Section& section, const v1::DeviceConfig& device,
                     absl::flat_hash_set<std::string>& files) {
  const std::string& file = device.tuning_file();
  if (file.empty()) return;
  if (!device.name().starts_with("cuda:")) {
    section.Fail("tuning_file", absl::StrCat(Quoted(device.name()),
                                             " has no kernels to tune; leave it out, or give it to "
                                             "a cuda device"));
  } else if (file == device.tuning_table()) {
    section.Fail("tuning_file", absl::StrCat(Quoted(file),
                                             " is the tuning_table, which is never written; give "
                                             "another file"));
  } else if (!files.insert(file).second) {
    section.Fail("tuning_file",
                 absl::StrCat(Quoted(file), " is another device's; give each its own"));
  }
}

// Of what only a GPU has.
void CheckNoGpu(Section& section, const v1::DeviceConfig& device) {
  const auto refuse = [&](bool set, const char* field, const char* why) {
    if (set) section.Fail(field, absl::StrCat(Quoted(device.name()), why));
  };
  refuse(!device.tuning_table().empty(), "tuning_table",
         " takes no tuning table; leave it out, or give it to a cuda device");
  refuse(device.skip_self_test(), "skip_self_test", " has no self-test; leave it out");
  refuse(device.no_numa_binding(), "no_numa_binding", " is never bound to a node; leave it out");
}

}  // namespace

std::vector<DeviceConfig> ConvertDevices(v1::ServerConfig& message,
                                         absl::Span<const std::string> known_devices,
                                         Fields& fields) {
  std::vector<DeviceConfig> devices;
  absl::flat_hash_set<std::string> names;
  absl::flat_hash_set<std::string> tuning_files;
  for (int i = 0; i < message.devices_size(); ++i) {
    v1::DeviceConfig& device = *message.mutable_devices(i);
    Section section(absl::StrCat("devices[", i, "]"), device, fields);
    CheckDeviceName(section.At("name"), device.name(), known_devices, fields);
    if (!names.insert(device.name()).second) {
      section.Fail("name",
                   absl::StrCat(Quoted(device.name()), " is listed above; list a device once"));
    }
    for (int k = 0; k < device.disabled_kernels_size(); ++k) {
      if (IsKernelName(device.disabled_kernels(k))) continue;
      section.Fail(absl::StrCat("disabled_kernels[", k, "]"),
                   absl::StrCat(Quoted(device.disabled_kernels(k)), " is not a kernel's or a ",
                                "family's name; give one of those that gemmctl kernels lists"));
    }
    CheckTuningFile(section, device, tuning_files);
    if (!device.name().starts_with("cuda:")) CheckNoGpu(section, device);
    devices.push_back(
        {.name = device.name(),
         .memory_bytes = section.IntOrUnset("memory_bytes", {.max = kMaxConfigBytes}),
         .threads = static_cast<int>(section.IntOrUnset("threads", {.max = kMaxThreads})),
         .disabled_kernels = {device.disabled_kernels().begin(), device.disabled_kernels().end()},
         .tuning_table = device.tuning_table(),
         .tuning_file = device.tuning_file(),
         .self_test = !device.skip_self_test(),
         .numa_binding = !device.no_numa_binding()});
  }
  if (devices.empty()) message.add_devices()->set_name(devices.emplace_back().name);
  return devices;
}

}  // namespace gemmd::server
