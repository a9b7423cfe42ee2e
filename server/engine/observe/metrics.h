// Every metric that gemmd counts, by name, in one place; those that it reads when somebody asks are
// in process_metrics.h and state_metrics.h, and docs/metrics.md has all of them.
// Label values come from bounded sets of ours (devices, kernels, codes, methods, reasons, the
// config's tenants), never from a client: the number of series does not grow with traffic. Should a
// label slip that rule, a family stops at 10000 series and counts the rest under "other".
//
// Families hand out references that stay valid for the registry's life; hot paths keep them (a
// labelled look-up costs about 100 ns, an update 5-15 ns).

#pragma once

#include <array>
#include <atomic>
#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/observe/time_counts.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
template <typename Metric>
class Family;
}  // namespace prometheus

namespace gemmd::server {

class Exposition;
class Families;
class SourceRegistration;

// A family of metrics. One without labels has its one series from the start.
template <typename Metric, int kLabels>
class Kept {
 public:
  // `bounds`: of a histogram's buckets.
  Kept(Exposition& exposition, const char* name, const char* help,
       const std::array<const char*, kLabels>& labels = {},
       const std::vector<double>& bounds = TimeBuckets());

  // The series of these label values. Thread-safe; the same ones give the same object.
  template <std::convertible_to<std::string_view>... Values>
  requires(sizeof...(Values) == kLabels) Metric& operator()(const Values&... values) {
    return Series(std::array<std::string_view, kLabels>{std::string_view(values)...});
  }

 private:
  Metric& Series(const std::array<std::string_view, kLabels>& values);

  prometheus::Family<Metric>& family_;
  const std::array<const char*, kLabels> labels_;
  const std::vector<double>& bounds_;
  std::atomic<int> series_{0};
};

// The names of a family's labels.
template <typename... Names>
constexpr std::array<const char*, sizeof...(Names)> By(const Names&... names) {
  return {names...};
}

template <int kLabels>
using Counters = Kept<prometheus::Counter, kLabels>;
template <int kLabels>
using Gauges = Kept<prometheus::Gauge, kLabels>;
template <int kLabels>
using Histograms = Kept<prometheus::Histogram, kLabels>;

class Metrics {
 private:
  // Shared with MetricsServer, whose scrapes hold it while they read. Before the families in it.
  const std::shared_ptr<Exposition> exposition_;

 public:
  // `version` becomes the one label of gemmd_build_info.
  explicit Metrics(std::string_view version);
  ~Metrics();

  Counters<2> Requests{*exposition_, "gemmd_requests_total",
                       "RPCs answered, by method and gRPC status code.", By("method", "code")};
  Histograms<1> RequestSeconds{*exposition_, "gemmd_request_seconds",
                               "Seconds from an RPC's arrival to its answer, by method.",
                               By("method")};
  Counters<5> Ops{*exposition_, "gemmd_ops_total", "Ops finished, by the kernel that ran them.",
                  By("device", "op", "dtype", "kernel", "status")};
  Counters<2> Flops{*exposition_, "gemmd_flops_total",
                    "Floating-point operations done (a multiply and an add are two).",
                    By("device", "dtype")};
  Histograms<2> QueueSeconds{*exposition_, "gemmd_queue_seconds",
                             "Seconds a program waited from acceptance to its launch.",
                             By("device", "priority")};
  Histograms<1> LaunchSeconds{*exposition_, "gemmd_launch_seconds",
                              "Seconds the host took to launch a program.", By("device")};
  // way: ops, graph, capture_failed, chained
  Counters<2> Launches{
      *exposition_, "gemmd_launches_total",
      "Programs run: op by op, as a graph, or op by op because recording the graph failed.",
      By("device", "way")};
  Histograms<2> DeviceSeconds{*exposition_, "gemmd_device_seconds",
                              "Seconds of device time of an op, by kernel.",
                              By("device", "kernel")};
  Counters<1> DeviceBusySeconds{*exposition_, "gemmd_device_busy_seconds_total",
                                "Seconds that a device was running programs.", By("device")};
  Counters<1> DeviceTransferSeconds{
      *exposition_, "gemmd_device_transfer_seconds_total",
      "Seconds that a GPU was copying from or to the host beside programs.", By("device")};
  Gauges<1> QueuedTransfers{*exposition_, "gemmd_queued_transfers",
                            "Transfers accepted and not yet launched: programs of nothing but "
                            "copies between a GPU and the host.",
                            By("device")};
  Gauges<2> QueueDepth{*exposition_, "gemmd_queue_depth",
                       "Programs accepted and not yet launched, by priority.",
                       By("device", "priority")};
  // The autoscaling signal.
  Gauges<1> QueuedDeviceSeconds{
      *exposition_, "gemmd_queued_device_seconds",
      "Estimated device seconds of the work waiting: scale out when it stays high.", By("device")};
  Counters<1> Rejected{*exposition_, "gemmd_rejected_total",
                       "Calls and programs refused for limits, deadlines and drains, by reason.",
                       By("reason")};
  Gauges<0> Sessions{*exposition_, "gemmd_sessions", "Sessions open."};
  Counters<1> SessionsEnded{*exposition_, "gemmd_sessions_ended_total", "Sessions ended, by cause.",
                            By("cause")};
  Gauges<1> Buffers{*exposition_, "gemmd_buffers", "Buffers alive, by device.", By("device")};
  // kind: device, host_shared
  Gauges<2> BufferBytes{*exposition_, "gemmd_buffer_bytes",
                        "Bytes of buffers alive, by device and kind of memory.",
                        By("device", "kind")};
  Gauges<0> Plans{*exposition_, "gemmd_plans", "Plans alive."};
  // Queue, Upload, ...
  Gauges<1> Streams{*exposition_, "gemmd_streams", "Streaming RPCs open, by method.", By("method")};
  Gauges<0> Programs{*exposition_, "gemmd_programs", "Programs accepted and not yet answered."};
  // dir: in, out; path: grpc, inline, shm
  Counters<3> TransferBytes{*exposition_, "gemmd_transfer_bytes_total",
                            "Bytes moved between clients and buffers, by way.",
                            By("device", "dir", "path")};
  Histograms<1> TransferSeconds{*exposition_, "gemmd_transfer_seconds",
                                "Seconds of an upload (dir=in) or a download (dir=out).", By("dir"),
                                TransferBuckets()};
  Counters<0> ChecksumFailures{*exposition_, "gemmd_checksum_failures_total",
                               "Uploaded chunks whose CRC32C did not match."};
  Counters<0> PlanRuns{*exposition_, "gemmd_plan_runs_total", "Runs of plans."};
  // path: grpc, armed; status: ok, failed
  Counters<3> Runs{*exposition_, "gemmd_runs_total",
                   "Programs that a device ran, by the way they came and their end.",
                   By("device", "path", "status")};
  Gauges<0> ArmedSlots{*exposition_, "gemmd_armed_slots", "Plans armed."};
  Counters<1> ArmedRuns{*exposition_, "gemmd_armed_runs_total",
                        "Rings of armed plans answered, refused ones among the failed.",
                        By("status")};
  Counters<0> ArmedPollSeconds{*exposition_, "gemmd_armed_poll_seconds_total",
                               "Seconds that the poller of armed plans was awake."};
  Counters<1> KernelFallback{*exposition_, "gemmd_kernel_fallback_total",
                             "Ops that ran on a fallback kernel, by reason.", By("reason")};
  Gauges<2> KernelQuarantined{*exposition_, "gemmd_kernel_quarantined",
                              "1 for a kernel that failed its self-test and is not used.",
                              By("device", "kernel")};
  // state: enabled, disabled, quarantined
  Gauges<2> Kernels{*exposition_, "gemmd_kernels", "Kernels of a device, by what they may do.",
                    By("device", "state")};
  Gauges<2> DeviceState{*exposition_, "gemmd_device_state",
                        "1 for the state a device is in, 0 for the others.", By("device", "state")};
  // result: ok, invalid, refused
  Counters<1> ConfigReloads{*exposition_, "gemmd_config_reloads_total",
                            "Reloads of the config file, by result.", By("result")};
  Counters<1> AuthRefusals{*exposition_, "gemmd_auth_refusals_total",
                           "Calls refused for who made them, by reason.", By("reason")};
  Gauges<0> Tokens{*exposition_, "gemmd_tokens", "Tokens in the token file."};
  Counters<1> TokenFileLoads{*exposition_, "gemmd_token_file_loads_total",
                             "Loads of the token file, by result.", By("result")};
  // listener: its address in the config
  Gauges<1> CertificateExpiry{*exposition_, "gemmd_certificate_expiry_timestamp_seconds",
                              "When a listener's certificate expires, in Unix time.",
                              By("listener")};
  // result: ok, invalid
  Counters<2> CertificateLoads{*exposition_, "gemmd_certificate_loads_total",
                               "Loads of a listener's TLS files after they changed, by result.",
                               By("listener", "result")};
  Counters<1> TenantDeviceSeconds{*exposition_, "gemmd_tenant_device_seconds_total",
                                  "Seconds of device time used, by tenant.", By("tenant")};
  Counters<2> TenantRejected{*exposition_, "gemmd_tenant_rejected_total",
                             "Calls and programs refused, by tenant and reason.",
                             By("tenant", "reason")};
  Gauges<0> ProcessorWakeHeld{
      *exposition_, "gemmd_processor_wake_held",
      "1 while scheduler.processor_wake_us bounds the machine's processors."};
  Gauges<0> Draining{*exposition_, "gemmd_draining", "1 from the signal that begins a drain."};

  // `source` is read at each scrape, until the result is destroyed.
  std::unique_ptr<SourceRegistration> Register(std::function<void(Families&)> source);
  std::shared_ptr<const Exposition> exposition() const;
  // The text exposition, as a scrape would get it.
  std::string Text() const;

 private:
  static const std::vector<double>& TransferBuckets();
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
