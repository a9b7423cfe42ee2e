#include "server/config/per_device.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/config/address.h"
#include "server/config/fields.h"

namespace gemmd::server {
namespace {

constexpr std::string_view kDevicePlace = "{device}";
constexpr std::string_view kUnixPath = "unix:";
constexpr int kMaxPort = 65535;

// The one that a process is for.
struct Turn {
  const std::string& device;
  int index;
  bool alone;  // the config has no other
};

// Visits every field that names a place on the machine and is set. `file` says that its value is
// a path, not an address.
void ForEachPlace(
    ConfigSource& source,
    absl::FunctionRef<void(const std::string& path, bool file, std::string& value)> visit) {
  v1::ServerConfig& message = source.message;
  for (int i = 0; i < message.listeners_size(); ++i) {
    visit(absl::StrCat("listeners[", i, "].address"), false,
          *message.mutable_listeners(i)->mutable_address());
  }
  for (size_t i = 0; i < source.listen.size(); ++i) {
    visit(absl::StrCat("--listen[", i, "]"), false, source.listen[i]);
  }
  if (!message.metrics().address().empty()) {
    visit("metrics.address", false, *message.mutable_metrics()->mutable_address());
  }
  if (!message.share().socket_path().empty()) {
    visit("share.socket_path", true, *message.mutable_share()->mutable_socket_path());
  }
}

void NameDevice(const std::string& path, const Turn& turn, std::string& value, Fields& fields) {
  if (!HasDevicePlace(value) && !turn.alone) {
    fields.Fail(path, absl::StrCat(Quoted(value), " would be that of every device's process; put ",
                                   "{device} into it, which becomes the device's name"));
  }
  value = WithDeviceName(value, turn.device);
}

// Leaves what is no port to the checks of addresses.
void ShiftPort(const std::string& path, const Turn& turn, std::string& address, Fields& fields) {
  const size_t digits = address.rfind(':') + 1;  // 0 without a colon
  int port = 0;
  if (digits == 0 || !absl::SimpleAtoi(address.substr(digits), &port) || port <= 0) return;
  if (port > kMaxPort - turn.index) {
    return fields.Fail(
        path, absl::StrCat("port ", port, " and ", turn.index, " more for ", turn.device,
                           " is above ", kMaxPort, "; give a lower one, or 0 for any free port"));
  }
  address = absl::StrCat(address.substr(0, digits), port + turn.index);
}

// The source of one device's process.
ConfigSource ForDevice(ConfigSource source, const Turn& turn, Fields& fields) {
  if (source.message.devices_size() > 0) {
    v1::DeviceConfig device = source.message.devices(turn.index);
    source.message.clear_devices();
    *source.message.add_devices() = std::move(device);
  }
  ForEachPlace(source, [&](const std::string& path, bool file, std::string& value) {
    if (file || IsUnix(value)) {
      NameDevice(path, turn, value, fields);
    } else {
      ShiftPort(path, turn, value, fields);
    }
  });
  return source;
}

}  // namespace

bool HasDevicePlace(std::string_view text) {
  return text.find(kDevicePlace) != std::string_view::npos;
}

std::string WithDeviceName(std::string_view text, std::string_view device) {
  std::string name(device);
  for (char& c : name) {
    if (c == ':') c = '-';
  }
  std::string out(text);
  for (size_t at = 0; (at = out.find(kDevicePlace, at)) != std::string::npos; at += name.size()) {
    out.replace(at, kDevicePlace.size(), name);
  }
  return out;
}

absl::Status CheckOneProcess(const ConfigSource& source) {
  Fields fields;
  ConfigSource copy = source;
  ForEachPlace(copy, [&](const std::string& path, bool, std::string& value) {
    if (!HasDevicePlace(value)) return;
    fields.Fail(path, absl::StrCat(Quoted(value),
                                   " has {device}, which is for a process a device; "
                                   "start with --supervise or --device NAME, or "
                                   "write a name there"));
  });
  return fields.status();
}

absl::StatusOr<std::vector<ConfigSource>> SplitByDevice(const ConfigSource& source,
                                                        absl::Span<const std::string> devices) {
  Fields fields;
  std::vector<ConfigSource> sources;
  for (size_t i = 0; i < devices.size(); ++i) {
    const Turn turn{devices[i], static_cast<int>(i), devices.size() == 1};
    sources.push_back(ForDevice(source, turn, fields));
  }
  if (!fields.status().ok()) return fields.status();
  return sources;
}

absl::Status CheckApart(std::vector<ConfigSource> sources, absl::Span<const std::string> devices) {
  struct Owner {
    size_t process;
    std::string path;
  };
  Fields fields;
  absl::flat_hash_map<std::string, Owner> owners;
  for (size_t i = 0; i < sources.size(); ++i) {
    ForEachPlace(sources[i], [&](const std::string& path, bool file, std::string& value) {
      if (!file && HasFreePort(value)) return;
      const std::string place = IsUnixPath(value) ? value.substr(kUnixPath.size()) : value;
      const auto [owner, is_new] = owners.try_emplace(place, Owner{i, path});
      if (is_new || owner->second.process == i) return;
      fields.Fail(path, absl::StrCat(Quoted(value), " of ", devices[i], " is ", owner->second.path,
                                     " of ", devices[owner->second.process],
                                     ", too; give another path, or ports that are ", sources.size(),
                                     " or more apart, one for each device"));
    });
  }
  return fields.status();
}

}  // namespace gemmd::server
