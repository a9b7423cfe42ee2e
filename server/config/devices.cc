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

void CheckTuningFile(const std::string& path, const v1::DeviceConfig& device,
                     absl::flat_hash_set<std::string>& files, Fields& fields) {
  const std::string& file = device.tuning_file();
  if (file.empty()) return;
  const std::string field = absl::StrCat(path, ".tuning_file");
  if (!device.name().starts_with("cuda:")) {
    fields.Fail(field, absl::StrCat(Quoted(device.name()),
                                    " has no kernels to tune; leave it out, "
                                    "or give it to a cuda device"));
  } else if (file == device.tuning_table()) {
    fields.Fail(field, absl::StrCat(Quoted(file),
                                    " is the tuning_table, which is never written; "
                                    "give another file"));
  } else if (!files.insert(file).second) {
    fields.Fail(field, absl::StrCat(Quoted(file), " is another device's; give each its own"));
  }
}

}  // namespace

std::vector<DeviceConfig> ConvertDevices(const v1::ServerConfig& message,
                                         absl::Span<const std::string> known_devices,
                                         Fields& fields) {
  std::vector<DeviceConfig> devices;
  absl::flat_hash_set<std::string> names;
  absl::flat_hash_set<std::string> tuning_files;
  for (int i = 0; i < message.devices_size(); ++i) {
    const v1::DeviceConfig& device = message.devices(i);
    const std::string path = absl::StrCat("devices[", i, "]");
    CheckDeviceName(absl::StrCat(path, ".name"), device.name(), known_devices, fields);
    if (!names.insert(device.name()).second) {
      fields.Fail(absl::StrCat(path, ".name"), absl::StrCat(Quoted(device.name()),
                                                            " is listed above; list a device "
                                                            "once"));
    }
    for (int k = 0; k < device.disabled_kernels_size(); ++k) {
      if (IsKernelName(device.disabled_kernels(k))) continue;
      fields.Fail(absl::StrCat(path, ".disabled_kernels[", k, "]"),
                  absl::StrCat(Quoted(device.disabled_kernels(k)), " is not a kernel's or a ",
                               "family's name; give one of those that gemmctl kernels lists"));
    }
    if (!device.tuning_table().empty() && !device.name().starts_with("cuda:")) {
      fields.Fail(absl::StrCat(path, ".tuning_table"),
                  absl::StrCat(Quoted(device.name()),
                               " takes no tuning table; leave it out, or "
                               "give it to a cuda device"));
    }
    CheckTuningFile(path, device, tuning_files, fields);
    if (device.skip_self_test() && !device.name().starts_with("cuda:")) {
      fields.Fail(absl::StrCat(path, ".skip_self_test"),
                  absl::StrCat(Quoted(device.name()), " has no self-test; leave it out"));
    }
    if (device.no_numa_binding() && !device.name().starts_with("cuda:")) {
      fields.Fail(absl::StrCat(path, ".no_numa_binding"),
                  absl::StrCat(Quoted(device.name()), " is never bound to a node; leave it out"));
    }
    devices.push_back(
        {.name = device.name(),
         .memory_bytes = fields.IntOrUnset(absl::StrCat(path, ".memory_bytes"),
                                           device.memory_bytes(), {.max = kMaxConfigBytes}),
         .threads = static_cast<int>(fields.IntOrUnset(absl::StrCat(path, ".threads"),
                                                       device.threads(), {.max = kMaxThreads})),
         .disabled_kernels = {device.disabled_kernels().begin(), device.disabled_kernels().end()},
         .tuning_table = device.tuning_table(),
         .tuning_file = device.tuning_file(),
         .self_test = !device.skip_self_test(),
         .numa_binding = !device.no_numa_binding()});
  }
  if (devices.empty()) devices.emplace_back();
  return devices;
}

}  // namespace gemmd::server
