// Every metric that gemmd counts, by name, in one place; those that it reads when somebody asks are
// in process_metrics.h, device_metrics.h and tenant_metrics.h, and docs/metrics.md has all of them.
// Label values come from bounded sets of ours (devices, kernels, codes, methods, reasons, the
// config's tenants), never from a client: the number of series does not grow with traffic. Should a
// label slip that rule, a family stops at 10000 series and counts the rest under "other".
//
// Families hand out references that stay valid for the registry's life; hot paths keep them (a
// labelled look-up costs about 100 ns, an update 5-15 ns).

#ifndef GEMMD_SERVER_ENGINE_OBSERVE_METRICS_H_
#define GEMMD_SERVER_ENGINE_OBSERVE_METRICS_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace prometheus {
class Collectable;
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace gemmd::server {

class Exposition;
class SourceRegistration;

class Metrics {
 public:
  // `version` becomes the one label of gemmd_build_info.
  explicit Metrics(std::string_view version);
  ~Metrics();

  // Thread-safe; the same labels give the same object.
  prometheus::Counter& Requests(std::string_view method,
                                std::string_view code);            // gemmd_requests_total
  prometheus::Histogram& RequestSeconds(std::string_view method);  // gemmd_request_seconds
  prometheus::Counter& Ops(std::string_view device, std::string_view op, std::string_view dtype,
                           std::string_view kernel, std::string_view status);   // gemmd_ops_total
  prometheus::Counter& Flops(std::string_view device, std::string_view dtype);  // gemmd_flops_total
  prometheus::Histogram& QueueSeconds(std::string_view device, std::string_view priority);
  prometheus::Histogram& LaunchSeconds(std::string_view device);
  // gemmd_launches_total; way: ops, graph, capture_failed, chained
  prometheus::Counter& Launches(std::string_view device, std::string_view way);
  prometheus::Histogram& DeviceSeconds(std::string_view device, std::string_view kernel);
  prometheus::Counter& DeviceBusySeconds(
      std::string_view device);  // gemmd_device_busy_seconds_total
  prometheus::Counter& DeviceTransferSeconds(
      std::string_view device);  // gemmd_device_transfer_seconds_total
  prometheus::Gauge& QueuedTransfers(std::string_view device);  // gemmd_queued_transfers
  prometheus::Gauge& QueueDepth(std::string_view device, std::string_view priority);
  prometheus::Gauge& QueuedDeviceSeconds(std::string_view device);  // the autoscaling signal
  prometheus::Counter& Rejected(std::string_view reason);           // gemmd_rejected_total
  prometheus::Gauge& Sessions();                                    // gemmd_sessions
  prometheus::Counter& SessionsEnded(std::string_view cause);       // closed, expired, cut, ...
  prometheus::Gauge& Buffers(std::string_view device);              // gemmd_buffers
  prometheus::Gauge& BufferBytes(std::string_view device,
                                 std::string_view kind);  // kind: device, host_shared
  prometheus::Gauge& Plans();                             // gemmd_plans
  prometheus::Gauge& Streams(
      std::string_view method);   // gemmd_streams: open Queue, Upload, ... streams
  prometheus::Gauge& Programs();  // gemmd_programs: accepted and not yet answered
  prometheus::Counter& TransferBytes(std::string_view device, std::string_view dir,
                                     std::string_view path);
  prometheus::Histogram& TransferSeconds(
      std::string_view dir);  // dir: in, out; path: grpc, inline, shm
  prometheus::Counter& ChecksumFailures();
  prometheus::Counter& PlanRuns();
  // gemmd_runs_total; path: grpc, armed; status: ok, failed
  prometheus::Counter& Runs(std::string_view device, std::string_view path,
                            std::string_view status);
  prometheus::Gauge& ArmedSlots();                          // gemmd_armed_slots
  prometheus::Counter& ArmedRuns(std::string_view status);  // gemmd_armed_runs_total
  prometheus::Counter& ArmedPollSeconds();                  // gemmd_armed_poll_seconds_total
  prometheus::Counter& KernelFallback(std::string_view reason);
  prometheus::Gauge& KernelQuarantined(std::string_view device, std::string_view kernel);
  // gemmd_kernels; state: enabled, disabled, quarantined
  prometheus::Gauge& Kernels(std::string_view device, std::string_view state);
  prometheus::Gauge& DeviceState(std::string_view device,
                                 std::string_view state);        // 1 for the current state
  prometheus::Gauge& ProcessorWakeHeld();                        // gemmd_processor_wake_held
  prometheus::Counter& ConfigReloads(std::string_view result);   // ok, invalid, refused
  prometheus::Counter& AuthRefusals(std::string_view reason);    // gemmd_auth_refusals_total
  prometheus::Gauge& Tokens();                                   // gemmd_tokens: in the token file
  prometheus::Counter& TokenFileLoads(std::string_view result);  // ok, invalid
  // gemmd_certificate_expiry_timestamp_seconds, by a listener's address in the config
  prometheus::Gauge& CertificateExpiry(std::string_view listener);
  prometheus::Counter& TenantDeviceSeconds(
      std::string_view tenant);  // gemmd_tenant_device_seconds_total
  // gemmd_tenant_rejected_total
  prometheus::Counter& TenantRejected(std::string_view tenant, std::string_view reason);
  prometheus::Gauge& Draining();  // gemmd_draining

  // `source` is read at each scrape, until the result is destroyed.
  std::unique_ptr<SourceRegistration> Register(
      std::unique_ptr<const prometheus::Collectable> source);
  std::shared_ptr<const Exposition> exposition() const;
  // The text exposition, as a scrape would get it.
  std::string Text() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

// Serves /metrics over HTTP, from a thread of its own. Port 0 picks a free one. UNAVAILABLE when
// the address cannot be bound.
class MetricsServer {
 public:
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              const Metrics& metrics);
  ~MetricsServer();
  int port() const;

 private:
  MetricsServer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_OBSERVE_METRICS_H_
