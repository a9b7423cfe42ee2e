#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "server/config/address.h"
#include "server/config/convert.h"

namespace gemmd::server {
namespace {

class ListenerList {
 public:
  ListenerList(absl::Span<const TenantConfig> tenants, Fields& fields)
      : tenants_(tenants), fields_(fields) {}

  void Add(const std::string& path, const std::string& address_path, ListenerConfig listener) {
    fields_.Fail(CheckListenAddress(address_path, listener.address));
    if (!HasFreePort(listener.address) && !addresses_.insert(listener.address).second) {
      fields_.Fail(address_path, absl::StrCat(Quoted(listener.address),
                                              " is taken by a listener above; give each listener "
                                              "an address of its own"));
    }
    const bool exists = std::any_of(tenants_.begin(), tenants_.end(), [&](const auto& tenant) {
      return tenant.name == listener.tenant;
    });
    if (!exists) {
      fields_.Fail(absl::StrCat(path, ".tenant"),
                   absl::StrCat(Quoted(listener.tenant), " is not one of tenants; add tenants { ",
                                "name: ", Quoted(listener.tenant), " } or name one that exists"));
    }
    listeners_.push_back(std::move(listener));
  }

  std::vector<ListenerConfig> Take() { return std::move(listeners_); }

 private:
  absl::Span<const TenantConfig> tenants_;
  Fields& fields_;
  absl::flat_hash_set<std::string> addresses_;
  std::vector<ListenerConfig> listeners_;
};

int UnixMode(const std::string& path, const v1::Listener& listener, Fields& fields) {
  const ListenerConfig defaults;
  if (listener.unix_mode() != 0 && !IsUnixPath(listener.address())) {
    fields.Fail(path, absl::StrCat(listener.unix_mode(), " is set for ", Quoted(listener.address()),
                                   ", which has no file; remove it"));
    return defaults.unix_mode;
  }
  if (listener.unix_mode() < 0 || listener.unix_mode() > 0777) {
    fields.Fail(path, absl::StrCat(listener.unix_mode(), " is not in 1 to 511 (0777); write the ",
                                   "mode in octal with a leading 0, as in 0660, or in decimal"));
    return defaults.unix_mode;
  }
  return listener.unix_mode() == 0 ? defaults.unix_mode : listener.unix_mode();
}

}  // namespace

std::vector<ListenerConfig> ConvertListeners(const v1::ServerConfig& message,
                                             absl::Span<const std::string> extra_listeners,
                                             absl::Span<const TenantConfig> tenants,
                                             Fields& fields) {
  ListenerList list(tenants, fields);
  const ListenerConfig defaults;
  for (int i = 0; i < message.listeners_size(); ++i) {
    const v1::Listener& listener = message.listeners(i);
    const std::string path = absl::StrCat("listeners[", i, "]");
    const std::string& tenant = listener.tenant().empty() ? defaults.tenant : listener.tenant();
    list.Add(
        path, absl::StrCat(path, ".address"),
        {listener.address(), tenant, UnixMode(absl::StrCat(path, ".unix_mode"), listener, fields)});
  }
  for (size_t i = 0; i < extra_listeners.size(); ++i) {
    const std::string path = absl::StrCat("--listen[", i, "]");
    list.Add(path, path, {.address = extra_listeners[i]});
  }
  std::vector<ListenerConfig> listeners = list.Take();
  if (listeners.empty()) {
    fields.Fail("listeners",
                "none given, at least 1 is needed; add listeners { address: \"127.0.0.1:8470\" } "
                "or start with --listen 127.0.0.1:8470");
  }
  return listeners;
}

}  // namespace gemmd::server
