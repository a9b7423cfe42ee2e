// gemmd: reads the config, starts the server, or a process with one for each device, and turns
// signals into what it does.

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "server/config/load.h"
#include "server/device_processes.h"
#include "server/engine/observe/log.h"
#include "server/engine/observe/log_writer.h"
#include "server/engine/sessions/access.h"
#include "server/engine/version.h"
#include "server/exit_status.h"
#include "server/grpc_threads/grpc_threads.h"
#include "server/kept_memory.h"
#include "server/options.h"
#include "server/places.h"
#include "server/process_start.h"
#include "server/ready_file.h"
#include "server/server.h"
#include "server/service_manager.h"
#include "server/signals.h"
#include "status/propagate.h"

// Few stay warm, and while one is in a long call the others answer. More devices than two have
// more: StartAgainWithThreads.
int gemmd_default_grpc_threads = 3;

namespace gemmd::server {
namespace {

// How late a device's fault is noticed: its health and, with the last one, the process's end; and
// the end of a device's process.
constexpr absl::Duration kWatchEvery = absl::Milliseconds(50);
// For how long a complaint waits for somebody to read it.
constexpr absl::Duration kLastWord = absl::Seconds(1);

// The configs to serve: one, or with --supervise one for each device's process.
absl::StatusOr<std::vector<ParsedConfig>> Load(const Options& options) {
  if (!options.supervise && options.device.empty()) {
    auto config = options.config.empty() ? ParseConfig("", options.listen)
                                         : LoadConfig(options.config, options.listen);
    if (!config.ok()) return config.status();
    return std::vector<ParsedConfig>{*std::move(config)};
  }
  auto configs = options.config.empty() ? ParseConfigPerDevice("", options.listen)
                                        : LoadConfigPerDevice(options.config, options.listen);
  if (!configs.ok() || options.supervise) return configs;
  GEMMD_ASSIGN_OR_RETURN(auto config, PickDevice(*configs, options.device));
  config.log.process = options.device;
  return std::vector<ParsedConfig>{std::move(config)};
}

// What to start with: a supervisor hands over what it has, which the file may not be by now.
absl::StatusOr<std::vector<ParsedConfig>> LoadFirst(const Options& options) {
  if (options.config_fd < 0) return Load(options);
  auto config = LoadConfig(absl::StrCat("/proc/self/fd/", options.config_fd));
  close(options.config_fd);
  if (!config.ok()) return config.status();
  config->log.process = options.device;
  return std::vector<ParsedConfig>{*std::move(config)};
}

bool StopsUs(int signal) { return signal == SIGTERM || signal == SIGINT; }

absl::Status TellReady(const Options& options, const Server& server) {
  const std::string text = ReadyText(server.addresses(), server.metrics_address());
  absl::Status told;
  if (!options.ready_file.empty()) told = WriteReadyFile(options.ready_file, text);
  if (options.ready_fd >= 0) told.Update(WriteReadyFd(options.ready_fd, text));
  return told;
}

// What is wrong goes to the log: whoever sent the signal is not here to be told.
void Reload(const Options& options, Server& server) {
  const auto next = Load(options);
  if (next.ok()) {
    (void)server.Reload(next->front());
  } else {
    server.NoteInvalidReload(next.status());
  }
}

// Connections, shared buffers and their pending descriptors all count; the usual soft limit of 1024
// is for programs that use select().
void RaiseFileLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Complain(const absl::Status& status, int exit_status) {
  // In one piece: processes that start at once write to the same place.
  WriteWithin(STDERR_FILENO, absl::StrCat("gemmd: ", status.message(), "\n"), kLastWord);
  return exit_status;
}

int Serve(const Options& options, const Config& config, const Signals& signals) {
  if (absl::Status made = MakeSocketFolders(config); !made.ok()) return Complain(made, kFailed);
  auto server = Server::Start(config);
  if (!server.ok()) {
    return Complain(server.status(),
                    absl::IsInvalidArgument(server.status()) ? kBadConfig : kFailed);
  }
  if (absl::Status told = TellReady(options, **server); !told.ok()) return Complain(told, kFailed);
  // Of a device's process its supervisor tells.
  const bool tells = options.config_fd < 0;
  if (absl::Status told = tells ? TellServiceManager(kServing) : absl::OkStatus(); !told.ok()) {
    Complain(told, kOk);
  }
  bool no_device = false;
  for (int signal = 0; !StopsUs(signal) && !no_device;) {
    signal = signals.Next(kWatchEvery);
    if (signal == SIGHUP) Reload(options, **server);
    no_device = (*server)->WatchDevices() == 0;
  }
  if (tells) (void)TellServiceManager(kDraining);
  const bool answered =
      (*server)->Drain([&] { return StopsUs(signals.Next(absl::ZeroDuration())); });
  server->reset();
  if (no_device) return kNoDevice;
  return answered ? kOk : kCutShort;
}

// Whether the processes may be told to read the config again. What is wrong goes to the log.
bool MayReload(const Options& options, std::vector<ParsedConfig>& configs, Log& log) {
  const auto next = Load(options);
  if (!next.ok()) {
    log.Warning("reload_invalid", {{"message", std::string(next.status().message())}});
    return false;
  }
  absl::Status allowed = CheckReload(configs, *next);
  if (allowed.ok()) allowed = Access::Check(next->front().auth, next->front().tenants);
  if (!allowed.ok()) {
    log.Warning("reload_refused", {{"message", std::string(allowed.message())}});
    return false;
  }
  configs = *next;
  log.Configure(configs.front().log);
  log.Info("reloaded", {});
  return true;
}

std::vector<std::string> Printed(const std::vector<ParsedConfig>& configs) {
  std::vector<std::string> texts;
  for (const ParsedConfig& config : configs) texts.push_back(config.text);
  return texts;
}

int Supervise(const Options& options, std::vector<ParsedConfig> configs, const Signals& signals) {
  Log log(configs.front().log);
  std::vector<DeviceProcesses::Device> devices;
  for (const Config& config : configs) {
    const std::string& name = config.devices.front().name;
    devices.push_back({.name = name, .command = DeviceCommand(options, name)});
  }
  log.Info("supervising", {{"version", kVersion}, {"devices", devices.size()}});
  DeviceProcesses processes(std::move(devices), options.ready_file, log);
  processes.SetConfigs(Printed(configs));
  while (true) {
    if (const std::optional<int> status = processes.Watch()) return *status;
    const int signal = signals.Next(kWatchEvery);
    if (signal == SIGHUP) {
      if (!MayReload(options, configs, log)) continue;
      processes.SetConfigs(Printed(configs));
    }
    if (StopsUs(signal)) (void)TellServiceManager(kDraining);
    if (signal != 0) processes.Signal(signal);
  }
}

// --print-config and --check.
int Show(const Options& options, const std::vector<ParsedConfig>& configs) {
  for (const ParsedConfig& config : configs) {
    if (!options.print_config) break;
    const std::string& device = config.devices.front().name;
    const std::string of = options.supervise ? absl::StrCat("# the process of ", device, "\n") : "";
    if (const int status = Print(absl::StrCat(of, config.text)); status != kOk) return status;
  }
  if (!options.check) return kOk;
  // The processes of one config read the same files.
  absl::Status fits = Server::CheckFiles(configs.front());
  for (const Config& config : configs) fits.Update(CheckPlaces(config));
  const std::string where = options.config.empty() ? "" : absl::StrCat(options.config, ": ");
  if (!fits.ok()) {
    std::cerr << absl::StrCat("gemmd: ", where, fits.message(), "\n");
    return kBadConfig;
  }
  // No errors: a config is checked beside the daemon that has it, and one for GPUs where there are
  // none.
  std::set<std::string> warnings;  // processes of one config have the same certificates
  for (const Config& config : configs) {
    for (std::string& warning : Server::Warnings(config)) warnings.insert(std::move(warning));
  }
  for (const std::string& warning : warnings) {
    std::cerr << absl::StrCat("gemmd: ", where, warning, "\n");
  }
  std::vector<std::string> used;
  for (const Config& config : configs) {
    for (std::string& address : AddressesInUse(config)) used.push_back(std::move(address));
  }
  if (!used.empty()) {
    std::cerr << absl::StrCat("gemmd: ", where, "in use now: ", absl::StrJoin(used, ", "),
                              "; right for the gemmd that has this config, but a second one would "
                              "not start\n");
  }
  for (const Config& config : configs) {
    if (absl::Status there = Server::CheckDevices(config); !there.ok()) {
      std::cerr << absl::StrCat("gemmd: ", where,
                                "would not start on this machine: ", there.message(), "\n");
    }
  }
  return kOk;
}

// gRPC counts its threads before main, when nobody knows how many devices there are. With three of
// them each of four H200 that had a client of its own kept 0.56 to 0.76 of its rate, with six all
// of it. So the process begins anew, once, with the number in its environment. Not where the config
// cannot be read again; and if it may not, it serves with those that it has.
void StartAgainWithThreads(const Options& options, const Config& config, char** argv) {
  constexpr size_t kServedWithoutMore = 2;
  constexpr size_t kMost = 16;  // as gRPC's
  const size_t devices = config.devices.size();
  std::error_code error;
  const bool readable =
      options.config_fd < 0 &&
      (options.config.empty() || std::filesystem::is_regular_file(options.config, error));
  if (devices <= kServedWithoutMore || !readable) return;
  const std::string threads = absl::StrCat(std::min(devices + 2, kMost));
  if (getenv(grpc_threads::kThreadsVariable) != nullptr) return;
  setenv(grpc_threads::kThreadsVariable, threads.c_str(), /*overwrite=*/1);
  execv("/proc/self/exe", argv);
  unsetenv(grpc_threads::kThreadsVariable);
}

int Run(const Options& options, char** argv) {
  // The distribution's Abseil looks for lock cycles at every Lock, gRPC's own included; tests keep
  // that on.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Else a supervised process, run as /proc/self/exe, would be called "exe".
  prctl(PR_SET_NAME, "gemmd");
  RaiseFileLimit();
  const Signals signals;
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file beyond ulimit -f, a log for one, is a write that fails

  // At once: what libraries do at a process's end may want what there is too little of.
  if (absl::Status room = CheckRoom(); !room.ok()) _exit(Complain(room, kFailed));
  auto configs = LoadFirst(options);
  if (!configs.ok()) return Complain(configs.status(), kBadConfig);
  if (options.check || options.print_config) return Show(options, *configs);
  if (options.supervise) return Supervise(options, *std::move(configs), signals);
  StartAgainWithThreads(options, configs->front(), argv);
  return Serve(options, configs->front(), signals);
}

}  // namespace
}  // namespace gemmd::server

// Before the libraries' constructors: one of gRPC's opens an eventfd.
__attribute__((section(".preinit_array"), used)) void (*const open_standard_descriptors)() =
    gemmd::server::OpenStandardDescriptors;

int main(int argc, char** argv) {
  gemmd::server::KeepFreedMemory();
  gemmd::server::ExplainUncaughtExceptions();
  return gemmd::server::Run(gemmd::server::ParseOptions(argc, argv), argv);
}
