
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "server/config/convert.h"

namespace gemmd::server {
namespace {

constexpr size_t kMaxRuleNameBytes = 256;
constexpr int64_t kMaxUid = 4294967294;  // the last one, 2^32 - 1, means none

// Tenant and role of a rule, with their defaults.
template <typename Message>
PrincipalConfig ConvertPrincipal(const std::string& path, Message& message,
                                 absl::Span<const TenantConfig> tenants, Fields& fields) {
  PrincipalConfig principal;
  if (message.tenant().empty()) message.set_tenant(principal.tenant);
  if (message.role() == v1::ROLE_UNSPECIFIED) message.set_role(v1::ROLE_USER);
  principal.tenant = message.tenant();
  CheckTenant(absl::StrCat(path, ".tenant"), principal.tenant, tenants, fields);
  principal.role = ConvertRole(absl::StrCat(path, ".role"), message.role(), fields);
  return principal;
}

std::vector<PrincipalConfig> ConvertCertificates(v1::AuthConfig& message,
                                                 absl::Span<const TenantConfig> tenants,
                                                 Fields& fields) {
  std::vector<PrincipalConfig> principals;
  absl::flat_hash_set<std::string> names;
  for (int i = 0; i < message.certificates_size(); ++i) {
    v1::CertificatePrincipal& rule = *message.mutable_certificates(i);
    const std::string path = absl::StrCat("auth.certificates[", i, "]");
    if (rule.name().empty() || rule.name().size() > kMaxRuleNameBytes) {
      fields.Fail(absl::StrCat(path, ".name"),
                  absl::StrCat(Quoted(rule.name()), " has ", rule.name().size(),
                               " bytes; give 1 to ", kMaxRuleNameBytes,
                               ": a URI, a DNS name or the common name of a certificate"));
    }
    if (!names.insert(rule.name()).second) {
      fields.Fail(absl::StrCat(path, ".name"),
                  absl::StrCat(Quoted(rule.name()), " is taken by a rule above; remove one"));
    }
    PrincipalConfig principal = ConvertPrincipal(path, rule, tenants, fields);
    principal.name = rule.name();
    principals.push_back(std::move(principal));
  }
  return principals;
}

std::vector<PrincipalConfig> ConvertUnixPeers(v1::AuthConfig& message,
                                              absl::Span<const TenantConfig> tenants,
                                              Fields& fields) {
  std::vector<PrincipalConfig> principals;
  absl::flat_hash_set<int64_t> uids;
  for (int i = 0; i < message.unix_peers_size(); ++i) {
    v1::UnixPrincipal& rule = *message.mutable_unix_peers(i);
    const std::string path = absl::StrCat("auth.unix_peers[", i, "]");
    if (rule.uid() < 0 || rule.uid() > kMaxUid) {
      fields.Fail(absl::StrCat(path, ".uid"),
                  absl::StrCat(rule.uid(), " is not in 0 to ", kMaxUid, "; give a user's id"));
    }
    if (!uids.insert(rule.uid()).second) {
      fields.Fail(absl::StrCat(path, ".uid"),
                  absl::StrCat(rule.uid(), " is taken by a rule above; remove one"));
    }
    PrincipalConfig principal = ConvertPrincipal(path, rule, tenants, fields);
    principal.uid = rule.uid();
    principals.push_back(std::move(principal));
  }
  return principals;
}

// A listener that asks for a credential which nothing can match would refuse everybody.
void CheckCredentials(absl::Span<const ListenerConfig> listeners, const AuthConfig& auth,
                      Fields& fields) {
  for (size_t i = 0; i < listeners.size(); ++i) {
    const std::string path = absl::StrCat("listeners[", i, "].credentials");
    const Credentials& asked = listeners[i].credentials;
    if (asked.token && auth.token_file.empty()) {
      fields.Fail(path, "has CREDENTIAL_TOKEN, but auth.token_file is not set; set it");
    }
    if (asked.certificate && auth.certificates.empty()) {
      fields.Fail(path, "has CREDENTIAL_CERTIFICATE, but auth.certificates has no rule; add one");
    }
  }
}

}  // namespace

Role ConvertRole(const std::string& path, v1::Role role, Fields& fields) {
  switch (role) {
    case v1::ROLE_USER:
      return Role::kUser;
    case v1::ROLE_OBSERVER:
      return Role::kObserver;
    case v1::ROLE_ADMIN:
      return Role::kAdmin;
    default:
      fields.Fail(path, absl::StrCat(role, " is not a role; give ROLE_USER, ROLE_OBSERVER or ",
                                     "ROLE_ADMIN"));
      return Role::kUser;
  }
}

AuthConfig ConvertAuth(v1::ServerConfig& message, absl::Span<const TenantConfig> tenants,
                       absl::Span<const ListenerConfig> listeners, Fields& fields) {
  v1::AuthConfig& auth = *message.mutable_auth();
  AuthConfig config{.token_file = auth.token_file(),
                    .certificates = ConvertCertificates(auth, tenants, fields),
                    .unix_peers = ConvertUnixPeers(auth, tenants, fields)};
  CheckCredentials(listeners, config, fields);
  return config;
}

}  // namespace gemmd::server
