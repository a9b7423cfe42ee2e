#include <algorithm>
#include <utility>

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
    const bool beyond_loopback =
        listener.tls || listener.plaintext_beyond_loopback || listener.health_only;
    fields_.Fail(CheckListenAddress(address_path, listener.address, beyond_loopback));
    const bool taken = std::any_of(listeners_.begin(), listeners_.end(), [&](const auto& other) {
      return Collide(other.address, listener.address);
    });
    if (taken) {
      fields_.Fail(address_path, absl::StrCat(Quoted(listener.address),
                                              " is taken by a listener above; give each listener "
                                              "an address of its own"));
    }
    CheckTenant(absl::StrCat(path, ".tenant"), listener.tenant, tenants_, fields_);
    listeners_.push_back(std::move(listener));
  }

  std::vector<ListenerConfig> Take() { return std::move(listeners_); }

 private:
  absl::Span<const TenantConfig> tenants_;
  Fields& fields_;
  std::vector<ListenerConfig> listeners_;
};

void FillDefaults(v1::Listener& listener, absl::Span<const TenantConfig> tenants) {
  if (listener.tenant().empty()) {
    // Whose callers all have a tenant of their credential, or none, needs none itself.
    const bool needs_none = listener.credentials_size() > 0 || listener.health_only();
    listener.set_tenant(needs_none ? tenants.front().name : ListenerConfig().tenant);
  }
  if (listener.role() == v1::ROLE_UNSPECIFIED) listener.set_role(v1::ROLE_USER);
}

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

TlsConfig ConvertTls(const std::string& path, v1::Listener& listener, Fields& fields) {
  v1::TlsConfig& message = *listener.mutable_tls();
  Section section(path, message, fields);
  TlsConfig tls{message.certificate_file(), message.key_file(), message.client_ca_file()};
  if (IsUnix(listener.address())) {
    fields.Fail(path, absl::StrCat("is set for ", Quoted(listener.address()),
                                   ", which stays on this host; remove it"));
  }
  for (const auto& [field, file] : {std::pair("certificate_file", &tls.certificate_file),
                                    std::pair("key_file", &tls.key_file)}) {
    if (file->empty()) {
      section.Fail(field, "none given; give the path of a PEM file");
    }
  }
  tls.watch = section.Time("watch_ms", {1000, 3'600'000}, tls.watch);
  return tls;
}

Credentials ConvertCredentials(const std::string& path, const v1::Listener& listener,
                               Fields& fields) {
  Credentials credentials;
  for (const int asked : listener.credentials()) {
    switch (asked) {
      case v1::CREDENTIAL_CERTIFICATE:
        credentials.certificate = true;
        if (listener.tls().client_ca_file().empty()) {
          fields.Fail(path,
                      "has CREDENTIAL_CERTIFICATE, but tls.client_ca_file is not set; set it");
        }
        break;
      case v1::CREDENTIAL_TOKEN:
        credentials.token = true;
        break;
      case v1::CREDENTIAL_UNIX_PEER:
        credentials.unix_peer = true;
        if (!IsUnix(listener.address())) {
          fields.Fail(path,
                      absl::StrCat("has CREDENTIAL_UNIX_PEER, but ", Quoted(listener.address()),
                                   " is not a Unix socket; remove it"));
        }
        break;
      default:
        fields.Fail(path, absl::StrCat(asked, " is not a credential; give CREDENTIAL_CERTIFICATE, ",
                                       "CREDENTIAL_TOKEN or CREDENTIAL_UNIX_PEER"));
    }
  }
  return credentials;
}

ListenerConfig ConvertListener(const std::string& path, v1::Listener& listener,
                               absl::Span<const TenantConfig> tenants, Fields& fields) {
  const auto at = [&](const char* field) { return absl::StrCat(path, ".", field); };
  FillDefaults(listener, tenants);
  ListenerConfig config{.address = listener.address(), .tenant = listener.tenant()};
  config.unix_mode = UnixMode(at("unix_mode"), listener, fields);
  if (listener.has_tls()) config.tls = ConvertTls(at("tls"), listener, fields);
  config.credentials = ConvertCredentials(at("credentials"), listener, fields);
  config.role = ConvertRole(at("role"), listener.role(), fields);
  config.plaintext_beyond_loopback = listener.plaintext_beyond_loopback();
  config.health_only = listener.health_only();
  if (config.tls && config.plaintext_beyond_loopback) {
    fields.Fail(at("plaintext_beyond_loopback"), "is set beside tls; remove one of them");
  }
  if (config.health_only && (config.tls || config.credentials.any())) {
    fields.Fail(at("health_only"),
                "is set beside tls or credentials, which it has no use for; remove them");
  }
  if (IsUnixPath(config.address)) listener.set_unix_mode(config.unix_mode);
  return config;
}

}  // namespace

std::vector<ListenerConfig> ConvertListeners(v1::ServerConfig& message,
                                             absl::Span<const std::string> extra_listeners,
                                             absl::Span<const TenantConfig> tenants,
                                             Fields& fields) {
  ListenerList list(tenants, fields);
  for (int i = 0; i < message.listeners_size(); ++i) {
    const std::string path = absl::StrCat("listeners[", i, "]");
    list.Add(path, absl::StrCat(path, ".address"),
             ConvertListener(path, *message.mutable_listeners(i), tenants, fields));
  }
  for (size_t i = 0; i < extra_listeners.size(); ++i) {
    const std::string path = absl::StrCat("--listen[", i, "]");
    v1::Listener& added = *message.add_listeners();
    added.set_address(extra_listeners[i]);
    list.Add(path, path, ConvertListener(path, added, tenants, fields));
  }
  std::vector<ListenerConfig> listeners = list.Take();
  const bool serves =
      std::any_of(listeners.begin(), listeners.end(),
                  [](const ListenerConfig& listener) { return !listener.health_only; });
  if (!serves) {
    fields.Fail("listeners",
                "none given that serves more than health, at least 1 is needed; add listeners { "
                "address: \"127.0.0.1:8470\" } or start with --listen 127.0.0.1:8470");
  }
  return listeners;
}

}  // namespace gemmd::server
