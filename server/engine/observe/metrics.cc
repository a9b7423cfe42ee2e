#include "server/engine/observe/metrics.h"

#include <atomic>
#include <utility>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/labels.h"
#include "prometheus/registry.h"
#include "server/engine/observe/exposition.h"
#include "server/engine/observe/time_counts.h"
#include "server/engine/reason.h"

namespace gemmd::server {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Registry;

// Far above devices x kernels x dtypes x states of any one family; reached only by a label that
// should not have been one.
constexpr int kMaxSeries = 10000;

std::vector<double> PowersOfTwo(double first, int count) {
  std::vector<double> bounds;
  for (double bound = first; static_cast<int>(bounds.size()) < count; bound *= 2) {
    bounds.push_back(bound);
  }
  return bounds;
}

const std::vector<double>& TransferBuckets() {  // 100 us to 13 s
  static const std::vector<double>& buckets = *new std::vector<double>(PowersOfTwo(1e-4, 18));
  return buckets;
}

std::string Str(std::string_view value) { return std::string(value); }

// A family that never holds more than kMaxSeries series: past that, new label values count under
// "other", so a mistake in a label costs precision and not the daemon's memory.
template <typename Metric>
class BoundedFamily {
 public:
  explicit BoundedFamily(prometheus::Family<Metric>& family) : family_(family) {}

  template <typename... Args>
  Metric& Get(prometheus::Labels labels, const Args&... args) {
    if (!family_.Has(labels)) {
      // Two threads that add the same labels count twice: the bound is then one tighter.
      if (series_.load(std::memory_order_relaxed) >= kMaxSeries) {
        for (auto& [name, value] : labels) value = "other";
      } else {
        series_.fetch_add(1, std::memory_order_relaxed);
      }
    }
    return family_.Add(labels, args...);
  }

 private:
  prometheus::Family<Metric>& family_;
  std::atomic<int> series_{0};
};

using Counters = BoundedFamily<Counter>;
using Gauges = BoundedFamily<Gauge>;
using Histograms = BoundedFamily<Histogram>;

prometheus::Family<Counter>& NewCounters(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
prometheus::Family<Gauge>& NewGauges(Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
prometheus::Family<Histogram>& NewHistograms(Registry& registry, const char* name,
                                             const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

}  // namespace

struct Metrics::Families {
  // Shared with MetricsServer, whose scrapes hold it while they read.
  std::shared_ptr<Exposition> exposition = std::make_shared<Exposition>();
  Registry& r = exposition->registry();

  Gauges build_info{NewGauges(r, "gemmd_build_info", "1, with the version as a label.")};
  Counters requests{
      NewCounters(r, "gemmd_requests_total", "RPCs answered, by method and gRPC status code.")};
  Histograms request_seconds{NewHistograms(
      r, "gemmd_request_seconds", "Seconds from an RPC's arrival to its answer, by method.")};
  Counters ops{NewCounters(r, "gemmd_ops_total", "Ops finished, by the kernel that ran them.")};
  Counters flops{NewCounters(r, "gemmd_flops_total",
                             "Floating-point operations done (a multiply and an add are two).")};
  Histograms queue_seconds{NewHistograms(
      r, "gemmd_queue_seconds", "Seconds a program waited from acceptance to its launch.")};
  Histograms launch_seconds{
      NewHistograms(r, "gemmd_launch_seconds", "Seconds the host took to launch a program.")};
  Counters launches{NewCounters(r, "gemmd_launches_total",
                                "Programs run: op by op, as a graph, or op by op because "
                                "recording the graph failed.")};
  Histograms device_seconds{
      NewHistograms(r, "gemmd_device_seconds", "Seconds of device time of an op, by kernel.")};
  Counters device_busy_seconds{NewCounters(r, "gemmd_device_busy_seconds_total",
                                           "Seconds that a device was running programs.")};
  Counters device_transfer_seconds{
      NewCounters(r, "gemmd_device_transfer_seconds_total",
                  "Seconds that a GPU was copying from or to the host beside programs.")};
  Gauges queued_transfers{NewGauges(r, "gemmd_queued_transfers",
                                    "Transfers accepted and not yet launched: programs of nothing "
                                    "but copies between a GPU and the host.")};
  Gauges queue_depth{
      NewGauges(r, "gemmd_queue_depth", "Programs accepted and not yet launched, by priority.")};
  Gauges queued_device_seconds{
      NewGauges(r, "gemmd_queued_device_seconds",
                "Estimated device seconds of the work waiting: scale out when it stays high.")};
  Counters rejected{
      NewCounters(r, "gemmd_rejected_total",
                  "Calls and programs refused for limits, deadlines and drains, by reason.")};
  Gauges sessions{NewGauges(r, "gemmd_sessions", "Sessions open.")};
  Counters sessions_ended{
      NewCounters(r, "gemmd_sessions_ended_total", "Sessions ended, by cause.")};
  Gauges buffers{NewGauges(r, "gemmd_buffers", "Buffers alive, by device.")};
  Gauges buffer_bytes{
      NewGauges(r, "gemmd_buffer_bytes", "Bytes of buffers alive, by device and kind of memory.")};
  Gauges plans{NewGauges(r, "gemmd_plans", "Plans alive.")};
  Gauges streams{NewGauges(r, "gemmd_streams", "Streaming RPCs open, by method.")};
  Gauges programs{NewGauges(r, "gemmd_programs", "Programs accepted and not yet answered.")};
  Counters transfer_bytes{NewCounters(r, "gemmd_transfer_bytes_total",
                                      "Bytes moved between clients and buffers, by way.")};
  Histograms transfer_seconds{NewHistograms(
      r, "gemmd_transfer_seconds", "Seconds of an upload (dir=in) or a download (dir=out).")};
  Counters checksum_failures{NewCounters(r, "gemmd_checksum_failures_total",
                                         "Uploaded chunks whose CRC32C did not match.")};
  Counters plan_runs{NewCounters(r, "gemmd_plan_runs_total", "Runs of plans.")};
  Counters runs{NewCounters(r, "gemmd_runs_total",
                            "Programs that a device ran, by the way they came and their end.")};
  Gauges armed_slots{NewGauges(r, "gemmd_armed_slots", "Plans armed.")};
  Counters armed_runs{NewCounters(r, "gemmd_armed_runs_total",
                                  "Rings of armed plans answered, refused ones among the failed.")};
  Counters armed_poll_seconds{NewCounters(r, "gemmd_armed_poll_seconds_total",
                                          "Seconds that the poller of armed plans was awake.")};
  Counters kernel_fallback{NewCounters(r, "gemmd_kernel_fallback_total",
                                       "Ops that ran on a fallback kernel, by reason.")};
  Gauges kernel_quarantined{NewGauges(r, "gemmd_kernel_quarantined",
                                      "1 for a kernel that failed its self-test and is not used.")};
  Gauges kernels{NewGauges(r, "gemmd_kernels", "Kernels of a device, by what they may do.")};
  Gauges device_state{
      NewGauges(r, "gemmd_device_state", "1 for the state a device is in, 0 for the others.")};
  Counters config_reloads{
      NewCounters(r, "gemmd_config_reloads_total", "Reloads of the config file, by result.")};
  Counters auth_refusals{
      NewCounters(r, "gemmd_auth_refusals_total", "Calls refused for who made them, by reason.")};
  Gauges tokens{NewGauges(r, "gemmd_tokens", "Tokens in the token file.")};
  Counters token_file_loads{
      NewCounters(r, "gemmd_token_file_loads_total", "Loads of the token file, by result.")};
  Gauges certificate_expiry{NewGauges(r, "gemmd_certificate_expiry_timestamp_seconds",
                                      "When a listener's certificate expires, in Unix time.")};
  Counters tenant_device_seconds{NewCounters(r, "gemmd_tenant_device_seconds_total",
                                             "Seconds of device time used, by tenant.")};
  Counters tenant_rejected{NewCounters(r, "gemmd_tenant_rejected_total",
                                       "Calls and programs refused, by tenant and reason.")};
  Gauges processor_wake_held{
      NewGauges(r, "gemmd_processor_wake_held",
                "1 while scheduler.processor_wake_us bounds the machine's processors.")};
  Gauges draining{NewGauges(r, "gemmd_draining", "1 from the signal that begins a drain.")};
};

Metrics::Metrics(std::string_view version) : families_(std::make_unique<Families>()) {
  families_->build_info.Get({{"version", Str(version)}}).Set(1);
  // Series that exist from the start: a rate over them sees the first event too.
  Sessions();
  Plans();
  Programs();
  ChecksumFailures();
  PlanRuns();
  for (const char* cause : {"closed", "expired", "cut", "drained", "evicted"}) SessionsEnded(cause);
  for (const char* result : {"ok", "invalid", "refused"}) ConfigReloads(result);
  for (const char* dir : {"in", "out"}) TransferSeconds(dir);
  Draining();
  ProcessorWakeHeld();
  KernelFallback("no_better_kernel");
  for (std::string_view reason :
       {reason::kSessionLimit, reason::kBufferLimit, reason::kBufferBytesLimit, reason::kPlanLimit,
        reason::kArmedLimit, reason::kHostBytesLimit, reason::kStreamLimit, reason::kQueueLimit,
        reason::kOpsLimit, reason::kProgramLimit, reason::kInlineLimit, reason::kWindow,
        reason::kDeviceMemory, reason::kDeadline, reason::kDraining, reason::kDeviceFenced,
        reason::kQueuedTimeLimit}) {
    Rejected(reason);
  }
  for (std::string_view reason :
       {reason::kNoCredentials, reason::kBadToken, reason::kExpiredToken,
        reason::kUnknownCertificate, reason::kUnknownPeer, reason::kRole}) {
    AuthRefusals(reason);
  }
  for (const char* result : {"ok", "invalid"}) TokenFileLoads(result);
  Tokens();
}

Metrics::~Metrics() = default;

Counter& Metrics::Requests(std::string_view method, std::string_view code) {
  return families_->requests.Get({{"method", Str(method)}, {"code", Str(code)}});
}
Histogram& Metrics::RequestSeconds(std::string_view method) {
  return families_->request_seconds.Get({{"method", Str(method)}}, TimeBuckets());
}
Counter& Metrics::Ops(std::string_view device, std::string_view op, std::string_view dtype,
                      std::string_view kernel, std::string_view status) {
  return families_->ops.Get({{"device", Str(device)},
                             {"op", Str(op)},
                             {"dtype", Str(dtype)},
                             {"kernel", Str(kernel)},
                             {"status", Str(status)}});
}
Counter& Metrics::Flops(std::string_view device, std::string_view dtype) {
  return families_->flops.Get({{"device", Str(device)}, {"dtype", Str(dtype)}});
}
Histogram& Metrics::QueueSeconds(std::string_view device, std::string_view priority) {
  return families_->queue_seconds.Get({{"device", Str(device)}, {"priority", Str(priority)}},
                                      TimeBuckets());
}
Histogram& Metrics::LaunchSeconds(std::string_view device) {
  return families_->launch_seconds.Get({{"device", Str(device)}}, TimeBuckets());
}
Counter& Metrics::Launches(std::string_view device, std::string_view way) {
  return families_->launches.Get({{"device", Str(device)}, {"way", Str(way)}});
}
Histogram& Metrics::DeviceSeconds(std::string_view device, std::string_view kernel) {
  return families_->device_seconds.Get({{"device", Str(device)}, {"kernel", Str(kernel)}},
                                       TimeBuckets());
}
Counter& Metrics::DeviceBusySeconds(std::string_view device) {
  return families_->device_busy_seconds.Get({{"device", Str(device)}});
}
Gauge& Metrics::QueueDepth(std::string_view device, std::string_view priority) {
  return families_->queue_depth.Get({{"device", Str(device)}, {"priority", Str(priority)}});
}
Counter& Metrics::DeviceTransferSeconds(std::string_view device) {
  return families_->device_transfer_seconds.Get({{"device", Str(device)}});
}
Gauge& Metrics::QueuedTransfers(std::string_view device) {
  return families_->queued_transfers.Get({{"device", Str(device)}});
}
Gauge& Metrics::QueuedDeviceSeconds(std::string_view device) {
  return families_->queued_device_seconds.Get({{"device", Str(device)}});
}
Counter& Metrics::Rejected(std::string_view reason) {
  return families_->rejected.Get({{"reason", Str(reason)}});
}
Gauge& Metrics::Sessions() { return families_->sessions.Get({}); }
Counter& Metrics::SessionsEnded(std::string_view cause) {
  return families_->sessions_ended.Get({{"cause", Str(cause)}});
}
Gauge& Metrics::Buffers(std::string_view device) {
  return families_->buffers.Get({{"device", Str(device)}});
}
Gauge& Metrics::BufferBytes(std::string_view device, std::string_view kind) {
  return families_->buffer_bytes.Get({{"device", Str(device)}, {"kind", Str(kind)}});
}
Gauge& Metrics::Plans() { return families_->plans.Get({}); }
Gauge& Metrics::Streams(std::string_view method) {
  return families_->streams.Get({{"method", Str(method)}});
}
Gauge& Metrics::Programs() { return families_->programs.Get({}); }
Counter& Metrics::TransferBytes(std::string_view device, std::string_view dir,
                                std::string_view path) {
  return families_->transfer_bytes.Get(
      {{"device", Str(device)}, {"dir", Str(dir)}, {"path", Str(path)}});
}
Histogram& Metrics::TransferSeconds(std::string_view dir) {
  return families_->transfer_seconds.Get({{"dir", Str(dir)}}, TransferBuckets());
}
Counter& Metrics::ChecksumFailures() { return families_->checksum_failures.Get({}); }
Counter& Metrics::PlanRuns() { return families_->plan_runs.Get({}); }
Counter& Metrics::Runs(std::string_view device, std::string_view path, std::string_view status) {
  return families_->runs.Get(
      {{"device", Str(device)}, {"path", Str(path)}, {"status", Str(status)}});
}
Gauge& Metrics::ArmedSlots() { return families_->armed_slots.Get({}); }
Counter& Metrics::ArmedRuns(std::string_view status) {
  return families_->armed_runs.Get({{"status", Str(status)}});
}
Counter& Metrics::ArmedPollSeconds() { return families_->armed_poll_seconds.Get({}); }
Counter& Metrics::KernelFallback(std::string_view reason) {
  return families_->kernel_fallback.Get({{"reason", Str(reason)}});
}
Gauge& Metrics::KernelQuarantined(std::string_view device, std::string_view kernel) {
  return families_->kernel_quarantined.Get({{"device", Str(device)}, {"kernel", Str(kernel)}});
}
Gauge& Metrics::Kernels(std::string_view device, std::string_view state) {
  return families_->kernels.Get({{"device", Str(device)}, {"state", Str(state)}});
}
Gauge& Metrics::DeviceState(std::string_view device, std::string_view state) {
  return families_->device_state.Get({{"device", Str(device)}, {"state", Str(state)}});
}
Counter& Metrics::AuthRefusals(std::string_view reason) {
  return families_->auth_refusals.Get({{"reason", Str(reason)}});
}
Gauge& Metrics::Tokens() { return families_->tokens.Get({}); }
Counter& Metrics::TokenFileLoads(std::string_view result) {
  return families_->token_file_loads.Get({{"result", Str(result)}});
}
Gauge& Metrics::CertificateExpiry(std::string_view listener) {
  return families_->certificate_expiry.Get({{"listener", Str(listener)}});
}
Gauge& Metrics::ProcessorWakeHeld() { return families_->processor_wake_held.Get({}); }
Counter& Metrics::ConfigReloads(std::string_view result) {
  return families_->config_reloads.Get({{"result", Str(result)}});
}
Counter& Metrics::TenantDeviceSeconds(std::string_view tenant) {
  return families_->tenant_device_seconds.Get({{"tenant", Str(tenant)}});
}

Counter& Metrics::TenantRejected(std::string_view tenant, std::string_view reason) {
  return families_->tenant_rejected.Get({{"tenant", Str(tenant)}, {"reason", Str(reason)}});
}
Gauge& Metrics::Draining() { return families_->draining.Get({}); }

std::unique_ptr<SourceRegistration> Metrics::Register(
    std::unique_ptr<const prometheus::Collectable> source) {
  return std::make_unique<SourceRegistration>(families_->exposition, std::move(source));
}

std::shared_ptr<const Exposition> Metrics::exposition() const { return families_->exposition; }

std::string Metrics::Text() const { return families_->exposition->Text(); }

}  // namespace gemmd::server
