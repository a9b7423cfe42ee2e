#include "server/server.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/cpu/cpu_backend.h"
#ifdef GEMMD_HAVE_CUDA
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device/mps.h"
#endif
#include "prometheus/counter.h"
#include "server/config/load.h"
#include "server/connection_limits.h"
#include "server/engine/armed/armed_plans.h"
#include "server/engine/observe/exposition.h"
#include "server/engine/observe/line_budget.h"
#include "server/engine/observe/process_metrics.h"
#include "server/engine/server_state.h"
#include "server/engine/version.h"
#include "server/grpc_threads/grpc_threads.h"
#include "server/grpc_threads/metrics.h"
#include "server/guard/metrics.h"
#include "server/last_resort.h"
#include "server/memory_return.h"
#include "server/processor_wake.h"
#include "server/service/listen/grpc_log.h"
#include "server/service/listen/listener.h"
#include "server/service/listen/tls.h"
#include "server/service/otlp/exporter.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// How often a drain looks for a second signal.
constexpr absl::Duration kLookAgain = absl::Milliseconds(20);
constexpr int kCutLinesPerSecond = 20;
// Past a drain's limit programs are told to stop, which one on a CPU does in 100 ms; whatever has
// not ended after this long ends with the process.
constexpr absl::Duration kForceAfter = absl::Milliseconds(350);
// How long calls have to be answered once their programs were told.
constexpr absl::Duration kAnswerWithin = absl::Milliseconds(200);

#ifdef GEMMD_HAVE_CUDA
// 0 of "cuda:0"; none of a CPU's name.
std::optional<int> GpuOrdinal(absl::string_view device) {
  int ordinal = 0;
  if (absl::ConsumePrefix(&device, "cuda:") && absl::SimpleAtoi(device, &ordinal)) return ordinal;
  return std::nullopt;
}
#endif

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeBackend(const DeviceConfig& config,
                                                              [[maybe_unused]] Log& log) {
  if (absl::StartsWith(config.name, "cpu:")) {
    return kernels::CreateCpuBackend({.name = config.name,
                                      .threads = config.threads,
                                      .memory_bytes = config.memory_bytes,
                                      .disabled_kernels = config.disabled_kernels});
  }
#ifdef GEMMD_HAVE_CUDA
  if (const auto ordinal = GpuOrdinal(config.name)) {
    return kernels::CreateCudaBackend(
        {.name = config.name,
         .ordinal = *ordinal,
         .memory_bytes = config.memory_bytes,
         .disabled_kernels = config.disabled_kernels,
         .tuning_table = config.tuning_table,
         .self_test = config.self_test,
         .numa_binding = config.numa_binding,
         .unbound =
             [&](const absl::Status& why) {
               log.Warning("numa_unbound",
                           {{"device", config.name}, {"message", std::string(why.message())}});
             },
         .stale_tuning =
             [&](const std::string& why) {
               log.Warning("tuning_stale", {{"device", config.name}, {"message", why}});
             }});
  }
#endif
  return absl::InvalidArgumentError(
      absl::StrCat("device ", config.name, " is of no kind this build has; use cpu:0"));
}

// Of the collector's certificate.
absl::Status CheckTracing(const TracingConfig& config) {
  if (config.ca_file.empty()) return absl::OkStatus();
  return CheckAuthorities("tracing.ca_file", config.ca_file);
}

absl::Status CheckKernelNames(const DeviceConfig& config) {
  absl::Status names;
  if (absl::StartsWith(config.name, "cpu:")) {
    names = kernels::CheckCpuKernels(config.name, config.disabled_kernels);
  }
#ifdef GEMMD_HAVE_CUDA
  if (GpuOrdinal(config.name)) {
    names = kernels::CheckGpuKernels(config.name, config.disabled_kernels);
  }
#endif
  return names;
}

// One comes with the machine that has the device.
absl::Status CheckTuningTable(const DeviceConfig& config) {
  if (config.tuning_table.empty() || access(config.tuning_table.c_str(), R_OK) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("device ", config.name, ": tuning_table ",
                                                 config.tuning_table,
                                                 ": cannot read: ", std::strerror(errno)));
}

// One process's contexts are all under MPS or none is.
bool UnderMps([[maybe_unused]] const ServerState& state) {
#ifdef GEMMD_HAVE_CUDA
  for (const auto& device : state.devices()) {
    const int ordinal = device->backend().info().gpu_ordinal;
    if (ordinal >= 0) return kernels::RunsUnderMps(ordinal);
  }
#endif
  return false;
}

class StartedServer final : public Server {
 public:
  explicit StartedServer(const Config& config)
      : config_(config),
        instance_id_(absl::StrCat(absl::Hex(NewHandle().high, absl::kZeroPad16))),
        log_(config.log),
        metrics_(kVersion),
        connections_(LimitsOf(config), [this](auto name, auto why) { NoteCut(name, why); }),
        read_metrics_(metrics_.Register([this](Families& families) { ReadMetrics(families); })) {}

  absl::Status Begin() {
    SetBusyPoll(config_);
    GEMMD_RETURN_IF_ERROR(SetProcessorWake(config_));
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    for (const DeviceConfig& device : config_.devices) {
      GEMMD_ASSIGN_OR_RETURN(auto backend, MakeBackend(device, log_));
      backends.push_back(std::move(backend));
    }
    GEMMD_ASSIGN_OR_RETURN(state_, ServerState::Create(config_, std::move(backends), clock_, log_,
                                                       metrics_, instance_id_));
    const bool under_mps = UnderMps(*state_);
    state_->armed().set_under_mps(under_mps);
    if (absl::Status tracing = CheckTracing(config_.tracing); !tracing.ok()) return tracing;
    if (state_->spans().on()) {
      GEMMD_ASSIGN_OR_RETURN(
          exporter_, OtlpExporter::Start(config_.tracing, instance_id_, state_->spans(), log_));
    }
    if (!config_.metrics_address.empty()) {
      GEMMD_ASSIGN_OR_RETURN(metrics_server_,
                             MetricsServer::Start(config_.metrics_address, metrics_));
    }
    EnableListenerPlugins();
    quota_.Resize(static_cast<size_t>(ReceiveQuotaBytes(config_.connections)));
    for (const ListenerConfig& config : config_.listeners) {
      GEMMD_ASSIGN_OR_RETURN(
          auto listener, Listener::Start(config, {*state_, live_, streams_, connections_, quota_}));
      listeners_.push_back(std::move(listener));
    }
    for (const auto& device : state_->devices()) {
      const kernels::DeviceInfo& info = device->backend().info();
      log_.Info("device", {{"device", info.name},
                           {"model", info.model},
                           {"memory_bytes", info.memory_bytes},
                           {"kernels", static_cast<int64_t>(device->backend().kernels().size())}});
    }
    for (const auto& listener : listeners_) {
      log_.Info("listening", {{"address", listener->address()}});
    }
    log_.Info("serving", {{"version", kVersion},
                          {"instance", instance_id_},
                          {"mps", under_mps},
                          {"devices", static_cast<int64_t>(config_.devices.size())},
                          {"metrics", metrics_address()}});
    return absl::OkStatus();
  }

  ~StartedServer() override {
    for (const auto& listener : listeners_) listener->Shutdown(absl::Now());
    listeners_.clear();
    exporter_.reset();  // with the spans of the last calls
  }

  // On a thread of gRPC's. Anybody who can connect can be cut: the lines are bounded.
  void NoteCut(std::string_view name, guard::Breach why) {
    const std::optional<int64_t> left_out = cut_lines_.Take(clock_.Now());
    if (!left_out) return;
    log_.Warning("connection_cut",
                 {{"peer", name}, {"reason", guard::Name(why)}, {"left_out", *left_out}});
  }

  // What is read at each scrape, beside what the state has.
  void ReadMetrics(Families& families) const {
    families.AddCounter("gemmd_log_lines_dropped_total",
                        "Lines of the log lost because nobody read them or the disk was full.",
                        log_.dropped());
    families.AddCounter("gemmd_memory_returned_bytes_total",
                        "Memory of bursts that was given back to the system while idle.",
                        memory_return_.returned_bytes());
    ReadProcess("/proc", families);
    grpc_threads::ReadBusyPolled(families);
    guard::ReadConnections(connections_, families);
  }

  std::vector<std::string> addresses() const override {
    std::vector<std::string> addresses;
    for (const auto& listener : listeners_) addresses.push_back(listener->address());
    return addresses;
  }

  std::string metrics_address() const override {
    if (metrics_server_ == nullptr) return "";
    const std::string& address = config_.metrics_address;
    return absl::StrCat(address.substr(0, address.rfind(':')), ":", metrics_server_->port());
  }

  absl::Status Reload(const Config& next) override {
    absl::Status allowed = CheckReload(config_, next);
    if (allowed.ok()) allowed = Access::Check(next.auth, next.tenants);
    if (allowed.ok() && next.scheduler.processor_wake != config_.scheduler.processor_wake) {
      allowed = SetProcessorWake(next);
    }
    if (!allowed.ok()) {
      log_.Warning("reload_refused", {{"message", std::string(allowed.message())}});
      metrics_.ConfigReloads("refused").Increment();
      return allowed;
    }
    SetBusyPoll(next);
    state_->Reconfigure(next);
    config_ = next;
    log_.Info("reloaded", {});
    metrics_.ConfigReloads("ok").Increment();
    return absl::OkStatus();
  }

  void NoteInvalidReload(const absl::Status& why) override {
    log_.Warning("reload_invalid", {{"message", std::string(why.message())}});
    metrics_.ConfigReloads("invalid").Increment();
  }

  absl::Status SetProcessorWake(const Config& config) {
    std::unique_ptr<ProcessorWake> next;
    if (config.scheduler.processor_wake.has_value()) {
      GEMMD_ASSIGN_OR_RETURN(next, ProcessorWake::Create(*config.scheduler.processor_wake));
    }
    processor_wake_ = std::move(next);
    return absl::OkStatus();
  }

  static void SetBusyPoll(const Config& config) {
    grpc_threads::BusyPoll(absl::ToInt64Microseconds(config.scheduler.busy_poll));
  }

  void WatchPrograms() {
    int64_t done = 0, under_way = 0;
    for (const auto& device : state_->devices()) {
      const DeviceStats stats = device->stats();
      done += stats.completed;
      under_way += stats.queued + stats.launched;
    }
    memory_return_.Watch({.begun = done + live_.entered(), .under_way = under_way + live_.count()},
                         clock_.Now());
    if (processor_wake_ != nullptr) processor_wake_->Watch(done, under_way, clock_.Now());
    metrics_.ProcessorWakeHeld().Set(processor_wake_ != nullptr && processor_wake_->held());
  }

  int WatchDevices() override {
    WatchPrograms();
    for (const auto& listener : listeners_) listener->Watch();
    // A probe at one listener asks whether the daemon serves: none of them may be deaf.
    const bool accepting = std::all_of(listeners_.begin(), listeners_.end(),
                                       [](const auto& listener) { return listener->accepting(); });
    const bool changed = std::exchange(accepting_, accepting) != accepting;
    if (state_->NoteFaults() || changed) {
      for (const auto& listener : listeners_) listener->SetServing(accepting);
    }
    return state_->serving_devices();
  }

  // True once `done` holds; false at the deadline or when interrupted.
  bool Await(absl::Time deadline, absl::FunctionRef<bool()> interrupted,
             absl::FunctionRef<bool(absl::Time)> done) {
    while (true) {
      const absl::Time now = absl::Now();
      if (done(std::min(deadline, now + kLookAgain))) return true;
      if (interrupted() || now >= deadline) return false;
    }
  }

  bool Drain(absl::FunctionRef<bool()> second_signal) override {
    bool cut_short = false;
    const auto interrupted = [&] {
      if (!cut_short && second_signal()) {
        cut_short = true;
        EndBy(absl::Now() + kForceAfter, kCutShort);
      }
      return cut_short;
    };
    const absl::Time refuse_at = absl::Now() + config_.drain.notice;
    log_.Info("drain_begins", {{"notice_ms", absl::ToInt64Milliseconds(config_.drain.notice)},
                               {"limit_ms", absl::ToInt64Milliseconds(config_.drain.limit)},
                               {"live_calls", live_.count()}});
    state_->set_draining();
    for (const auto& listener : listeners_) listener->SetServing(false);
    streams_.NotifyAll(refuse_at);
    // Load balancers need the notice to stop sending; until it is over everything works as before.
    Await(refuse_at, interrupted, [](absl::Time until) {
      absl::SleepFor(until - absl::Now());
      return false;
    });
    state_->Refuse();
    const absl::Time limit = absl::Now() + config_.drain.limit;
    if (!cut_short) EndBy(limit + kForceAfter, kCutShort);
    streams_.DrainAll();
    const bool streams =
        Await(limit, interrupted, [&](absl::Time until) { return streams_.AwaitNone(until); });
    const bool calls =
        Await(limit, interrupted, [&](absl::Time until) { return live_.AwaitNone(until); });
    const bool answered = streams && calls;
    if (answered && !cut_short) EndBy(limit + kForceAfter, kOk);
    // Also programs that nobody waits for: of calls and streams that were cut.
    state_->StopPrograms();
    if (!answered) live_.AwaitNone(absl::Now() + kAnswerWithin);
    // What is left now is health watches and the like, which must not delay us, and calls past the
    // limit.
    for (const auto& listener : listeners_) listener->Shutdown(absl::Now());
    log_.Info("drained", {{"answered_all", answered}, {"live_calls", live_.count()}});
    return answered;
  }

 private:
  // However it hangs from here on, the process is gone by then.
  void EndBy(absl::Time when, ExitStatus status) {
    last_resort_.Set(when, state_->serving_devices() == 0 ? kNoDevice : status);
  }

  Config config_;
  const std::string instance_id_;
  std::unique_ptr<ProcessorWake> processor_wake_;  // null: as the system is set
  SystemClock clock_;
  Log log_;
  LastResort last_resort_{log_};  // watches over the end of all that is below
  GrpcLog grpc_log_{log_};
  Metrics metrics_;
  MemoryReturn memory_return_;
  std::unique_ptr<ServerState> state_;
  LiveCalls live_;
  StreamRegistry streams_;
  LineBudget cut_lines_{kCutLinesPerSecond};
  guard::Connections connections_;
  std::unique_ptr<SourceRegistration> read_metrics_;
  grpc::ResourceQuota quota_{"gemmd"};
  bool accepting_ = true;  // every listener
  std::unique_ptr<MetricsServer> metrics_server_;
  std::unique_ptr<OtlpExporter> exporter_;  // null when nothing is sent
  std::vector<std::unique_ptr<Listener>> listeners_;
};

}  // namespace

absl::Status Server::CheckFiles(const Config& config) {
  absl::Status status = Access::Check(config.auth, config.tenants);
  status.Update(CheckTracing(config.tracing));
  for (size_t i = 0; i < config.listeners.size(); ++i) {
    const auto& tls = config.listeners[i].tls;
    if (!tls) continue;
    const absl::Status files = CheckTlsFiles(*tls);
    if (files.ok()) continue;
    status.Update(absl::Status(files.code(), absl::StrCat("listeners[", i, "].", files.message())));
  }
  for (size_t i = 0; i < config.devices.size(); ++i) {
    const absl::Status names = CheckKernelNames(config.devices[i]);
    if (names.ok()) continue;
    status.Update(absl::Status(
        names.code(), absl::StrCat("devices[", i, "].disabled_kernels: ", names.message())));
  }
  return status;
}

std::vector<std::string> Server::Warnings(const Config& config) {
  std::vector<std::string> warnings;
  for (size_t i = 0; i < config.listeners.size(); ++i) {
    const auto& tls = config.listeners[i].tls;
    if (!tls) continue;
    const auto expiry = CertificateExpiry(tls->certificate_file);
    if (!expiry.ok() || *expiry > absl::Now()) continue;
    warnings.push_back(absl::StrCat(
        "listeners[", i, "].tls.certificate_file: ", ExpiredText(tls->certificate_file, *expiry)));
  }
  const int64_t there = kernels::CpuMemoryBytes();
  for (const DeviceConfig& device : config.devices) {
    if (!absl::StartsWith(device.name, "cpu:") || device.memory_bytes <= there) continue;
    warnings.push_back(absl::StrCat("device ", device.name, ": memory_bytes ", device.memory_bytes,
                                    " is above the ", there,
                                    " that this process may use: it would "
                                    "be killed before it refuses a buffer"));
  }
  return warnings;
}

absl::Status Server::CheckDevices(const Config& config) {
  absl::Status status;
#ifdef GEMMD_HAVE_CUDA
  for (const DeviceConfig& device : config.devices) {
    if (const auto ordinal = GpuOrdinal(device.name)) {
      status.Update(kernels::CheckGpu(device.name, *ordinal));
    }
  }
#endif
  for (const DeviceConfig& device : config.devices) status.Update(CheckTuningTable(device));
  return status;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config) {
  auto server = std::make_unique<StartedServer>(config);
  GEMMD_RETURN_IF_ERROR(server->Begin());
  return server;
}

}  // namespace gemmd::server
