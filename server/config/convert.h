// From the parsed config message to a Config: every rule checked, and defaults filled in, in the
// message too.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmd/v1/config.pb.h"
#include "server/config/fields.h"
#include "server/config/load.h"

namespace gemmd::server {

// `known_devices`: the devices this build can open; empty means any "cpu:N".
absl::StatusOr<ParsedConfig> ConvertConfig(v1::ServerConfig message,
                                           absl::Span<const std::string> extra_listeners,
                                           absl::Span<const std::string> known_devices);

// The parts, each in a file of its own. Errors go to `fields`.
Limits ConvertTopLimits(v1::LimitsConfig& message, Fields& fields);
// What the tenant leaves at 0 comes from `top`.
Limits ConvertTenantLimits(const std::string& path, v1::LimitsConfig& message, const Limits& top,
                           Fields& fields);
std::vector<TenantConfig> ConvertTenants(v1::ServerConfig& message, const Limits& top,
                                         Fields& fields);
std::vector<ListenerConfig> ConvertListeners(v1::ServerConfig& message,
                                             absl::Span<const std::string> extra_listeners,
                                             absl::Span<const TenantConfig> tenants,
                                             Fields& fields);
AuthConfig ConvertAuth(v1::ServerConfig& message, absl::Span<const TenantConfig> tenants,
                       absl::Span<const ListenerConfig> listeners, Fields& fields);
Role ConvertRole(const std::string& path, v1::Role role, Fields& fields);
// Fails when no tenant has this name.
void CheckTenant(const std::string& path, const std::string& name,
                 absl::Span<const TenantConfig> tenants, Fields& fields);
std::vector<DeviceConfig> ConvertDevices(v1::ServerConfig& message,
                                         absl::Span<const std::string> known_devices,
                                         Fields& fields);

}  // namespace gemmd::server
