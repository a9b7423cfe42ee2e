#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "server/config/convert.h"

namespace gemmd::server {
namespace {

constexpr size_t kMaxNameBytes = 32;

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

}  // namespace

void CheckTenant(const std::string& path, const std::string& name,
                 absl::Span<const TenantConfig> tenants, Fields& fields) {
  const bool exists = std::any_of(tenants.begin(), tenants.end(),
                                  [&](const auto& tenant) { return tenant.name == name; });
  if (exists) return;
  fields.Fail(path, absl::StrCat(Quoted(name), " is not one of tenants; add tenants { name: ",
                                 Quoted(name), " } or name one that exists"));
}

std::vector<TenantConfig> ConvertTenants(v1::ServerConfig& message, const Limits& top,
                                         Fields& fields) {
  if (message.tenants_size() == 0) message.add_tenants()->set_name(TenantConfig().name);
  std::vector<TenantConfig> tenants;
  absl::flat_hash_set<std::string> names;
  for (int i = 0; i < message.tenants_size(); ++i) {
    v1::Tenant& tenant = *message.mutable_tenants(i);
    Section section(absl::StrCat("tenants[", i, "]"), tenant, fields);
    if (!IsName(tenant.name())) {
      section.Fail("name",
                   absl::StrCat(Quoted(tenant.name()), " is not a tenant's name; give 1 to ",
                                kMaxNameBytes, " of a-z, 0-9 and -"));
    }
    if (!names.insert(tenant.name()).second) {
      section.Fail("name", absl::StrCat(Quoted(tenant.name()),
                                        " is taken by a tenant above; give each tenant a name of "
                                        "its own"));
    }
    tenants.push_back({.name = tenant.name(),
                       .weight = section.Double("weight", 0.01, 100, 1),
                       .limits = ConvertTenantLimits(section.At("limits"), *tenant.mutable_limits(),
                                                     top, fields)});
  }
  return tenants;
}

}  // namespace gemmd::server
