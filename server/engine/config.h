// Config: the config file, checked, with every default filled in. A plain value, immutable once
// built; whoever needs part of it gets that part through the constructor. server/config makes it
// from the textproto and knows the file's schema.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace gemmd::server {

struct Limits {
  int64_t max_message_bytes = 4 << 20;
  int max_ops = 4096;
  int64_t max_inline_bytes = (4 << 20) - (64 << 10);
  int max_sessions = 256;
  int max_buffers = 65536;
  int64_t max_buffer_bytes = 0;  // 0: bounded by the devices alone
  int max_plans = 65536;
  int max_armed = 65536;
  int max_queued_programs = 4096;
  int max_streams = 512;
  int window_batches = 64;
  int64_t window_bytes = 32 << 20;
  int idempotency_entries = 256;
  absl::Duration max_program_time = absl::Minutes(1);  // of the device, by the cost model
  absl::Duration max_queued_device_time = absl::InfiniteDuration();
  int64_t max_upload_bytes_per_second = 0;    // 0: no bound
  int64_t max_host_bytes = int64_t{1} << 30;  // beside buffers; Tenant::TakeHostBytes
  friend bool operator==(const Limits&, const Limits&) = default;
};

struct TenantConfig {
  std::string name = "default";
  double weight = 1.0;
  Limits limits;  // complete: the top level's where the tenant set none
  friend bool operator==(const TenantConfig&, const TenantConfig&) = default;
};

// What a caller may do: a user works in its tenant, an observer looks at every tenant and changes
// nothing, an admin may do everything. service/wire/rpc_roles.cc says which RPC is for whom.
enum class Role { kUser, kObserver, kAdmin };

struct TlsConfig {
  std::string certificate_file;  // PEM, as the other two
  std::string key_file;
  std::string client_ca_file;  // empty: no client certificate is asked for
  absl::Duration watch = absl::Seconds(1);
  friend bool operator==(const TlsConfig&, const TlsConfig&) = default;
};

// What a caller can show at a listener; all false: nothing is asked for.
struct Credentials {
  bool certificate = false;
  bool token = false;
  bool unix_peer = false;
  bool any() const { return certificate || token || unix_peer; }
  friend bool operator==(const Credentials&, const Credentials&) = default;
};

struct ListenerConfig {
  std::string address;  // as gRPC takes it: "127.0.0.1:8470", "unix:/path", "unix-abstract:name"
  std::string tenant = "default";  // with `role`: of callers whom no credential names
  int unix_mode = 0660;
  std::optional<TlsConfig> tls;
  Credentials credentials;
  Role role = Role::kUser;
  bool plaintext_beyond_loopback = false;
  bool health_only = false;
  friend bool operator==(const ListenerConfig&, const ListenerConfig&) = default;
};

// Who a credential stands for.
struct PrincipalConfig {
  std::string name;  // of a certificate; empty for a uid
  int64_t uid = 0;
  std::string tenant = "default";
  Role role = Role::kUser;
  friend bool operator==(const PrincipalConfig&, const PrincipalConfig&) = default;
};

struct AuthConfig {
  std::string token_file;  // empty: no tokens
  std::vector<PrincipalConfig> certificates;
  std::vector<PrincipalConfig> unix_peers;
  friend bool operator==(const AuthConfig&, const AuthConfig&) = default;
};

struct DeviceConfig {
  std::string name = "cpu:0";
  int64_t memory_bytes = 0;  // 0: the backend's default
  int threads = 0;           // 0: the cores this process may use
  std::vector<std::string> disabled_kernels;
  std::string tuning_table;  // a file or a folder; empty: the cost model chooses
  std::string tuning_file;   // likewise; empty: what is measured lasts as long as the process
  bool self_test = true;
  bool numa_binding = true;
  friend bool operator==(const DeviceConfig&, const DeviceConfig&) = default;
};

struct SessionConfig {
  absl::Duration default_ttl = absl::Seconds(30);
  absl::Duration min_ttl = absl::Seconds(1);
  absl::Duration max_ttl = absl::Hours(1);
  absl::Duration default_grace = absl::Seconds(2);
  friend bool operator==(const SessionConfig&, const SessionConfig&) = default;
};

struct SchedulerConfig {
  absl::Duration lookahead = absl::Milliseconds(2);
  absl::Duration aging = absl::Milliseconds(100);
  absl::Duration inline_below = absl::Microseconds(50);
  std::optional<absl::Duration> processor_wake;  // none: as the system is set
  absl::Duration busy_poll = absl::ZeroDuration();
  absl::Duration armed_linger = absl::Microseconds(200);
  absl::Duration armed_stream_linger = absl::Milliseconds(20);
  friend bool operator==(const SchedulerConfig&, const SchedulerConfig&) = default;
};

struct DrainConfig {
  absl::Duration notice = absl::Seconds(1);
  absl::Duration limit = absl::Seconds(20);
  friend bool operator==(const DrainConfig&, const DrainConfig&) = default;
};

struct TuningConfig {
  bool background = false;
  double max_share = 0.0075;
  friend bool operator==(const TuningConfig&, const TuningConfig&) = default;
};

inline constexpr int kMaxConnections = 50000;

struct ConnectionsConfig {
  int max = 0;           // 0: by the descriptors that the process may have
  int max_per_peer = 0;  // 0: half of them, at most 1024
  int max_streams = 1000;
  int64_t max_received_bytes = 0;  // 0: by the memory that the process may use
  friend bool operator==(const ConnectionsConfig&, const ConnectionsConfig&) = default;
};

struct ShareConfig {
  bool disabled = false;
  std::string socket_path;  // empty: an abstract socket of a random name
  friend bool operator==(const ShareConfig&, const ShareConfig&) = default;
};

enum class LogFormat { kText, kJson };
enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogConfig {
  LogFormat format = LogFormat::kText;
  LogLevel level = LogLevel::kInfo;
  int sample_calls = 0;  // 0: successful calls are not logged at INFO
  std::string process;   // says so in every line; empty: nothing, there is one process
  friend bool operator==(const LogConfig&, const LogConfig&) = default;
};

struct TracingConfig {
  std::string otlp_endpoint;  // empty: nothing is sent
  double sample = 0.01;       // of calls without a trace of their caller's; 0 to 1
  std::string ca_file;        // empty: plaintext
  bool plaintext_beyond_loopback = false;
  friend bool operator==(const TracingConfig&, const TracingConfig&) = default;
};

struct Config {
  std::vector<ListenerConfig> listeners;
  std::vector<DeviceConfig> devices;
  std::vector<TenantConfig> tenants;  // never empty; contains every listener's tenant
  SessionConfig session;
  SchedulerConfig scheduler;
  DrainConfig drain;
  ConnectionsConfig connections;
  TuningConfig tuning;
  ShareConfig share;
  std::string metrics_address;  // empty: none
  LogConfig log;
  TracingConfig tracing;
  AuthConfig auth;
};

}  // namespace gemmd::server
