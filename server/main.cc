// gemmd: reads the config, starts the server, and turns signals into what the server does.

#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "server/config/load.h"
#include "server/engine/version.h"
#include "server/server.h"
#include "server/signals.h"

namespace gemmd::server {
namespace {

// Exit statuses; kUsage tells what each means.
enum Exit { kOk = 0, kFailed = 1, kBadConfig = 2, kCutShort = 3, kNoDevice = 4 };

// How late a device's fault is noticed: its health and, with the last one, the process's end.
constexpr absl::Duration kWatchEvery = absl::Milliseconds(50);

constexpr char kUsage[] =
    R"(usage: gemmd --config FILE [--listen ADDRESS]...

  --config FILE      the config, a textproto of gemmd.v1.ServerConfig
  --listen ADDRESS   one more listener of tenant "default": 127.0.0.1:8470, unix:/path, unix-abstract:name
  --check            only check the config and the files it names; exit 0 or 2
  --print-config     print the config with every default filled in
  --ready-file FILE  write the listeners' addresses there, one a line, once serving; the metrics address last, as
                     "metrics ADDRESS"
  --version, --help

SIGTERM or SIGINT drains: health turns off, the notice passes, accepted work is answered. A second one stops at once.
SIGHUP reads the config again. Exit status: 0 drained, 1 could not start or run, 2 the config is wrong, 3 stopped before
all accepted work was answered, 4 drained because every device has faulted: start it again.
)";

struct Options {
  std::string config;
  std::vector<std::string> listen;
  bool check = false;
  bool print_config = false;
  std::string ready_file;
};

// Exits on --help, --version and misuse.
Options ParseOptions(int argc, char** argv) {
  static const option kOptions[] = {{"config", required_argument, nullptr, 'c'},
                                    {"listen", required_argument, nullptr, 'l'},
                                    {"check", no_argument, nullptr, 'k'},
                                    {"print-config", no_argument, nullptr, 'p'},
                                    {"ready-file", required_argument, nullptr, 'r'},
                                    {"version", no_argument, nullptr, 'v'},
                                    {"help", no_argument, nullptr, 'h'},
                                    {nullptr, 0, nullptr, 0}};
  Options options;
  for (int c; (c = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (c) {
      case 'c':
        options.config = optarg;
        break;
      case 'l':
        options.listen.push_back(optarg);
        break;
      case 'k':
        options.check = true;
        break;
      case 'p':
        options.print_config = true;
        break;
      case 'r':
        options.ready_file = optarg;
        break;
      case 'v':
        std::cout << "gemmd " << kVersion << "\n";
        std::exit(kOk);
      case 'h':
        std::cout << kUsage;
        std::exit(kOk);
      default:
        std::cerr << kUsage;
        std::exit(kBadConfig);
    }
  }
  if (optind < argc || (options.config.empty() && options.listen.empty())) {
    std::cerr << kUsage;
    std::exit(kBadConfig);
  }
  return options;
}

absl::StatusOr<Config> Load(const Options& options) {
  if (options.config.empty()) return ParseConfig("", options.listen);
  return LoadConfig(options.config, options.listen);
}

// Whole or not at all: a reader never sees half a list.
bool WriteReadyFile(const std::string& path, const Server& server) {
  const std::string draft = absl::StrCat(path, ".", getpid());
  std::ofstream out(draft);
  for (const std::string& address : server.addresses()) out << address << "\n";
  if (!server.metrics_address().empty()) out << "metrics " << server.metrics_address() << "\n";
  out.close();
  return out.good() && std::rename(draft.c_str(), path.c_str()) == 0;
}

// What is wrong goes to the log: whoever sent the signal is not here to be told.
void Reload(const Options& options, Server& server) {
  const auto next = Load(options);
  if (next.ok()) {
    (void)server.Reload(*next);
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

// gRPC reads messages into blocks of up to a megabyte. By default glibc gives such blocks back to
// the kernel as they are freed and faults them in again for the next message, which cost uploads a
// third of their rate; now up to 64 MiB an arena stay with the process.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

int Run(const Options& options) {
  KeepFreedMemory();
  // The distribution's Abseil looks for lock cycles at every Lock, gRPC's own included; tests keep
  // that on.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  RaiseFileLimit();
  const Signals signals;
  ::signal(SIGPIPE, SIG_IGN);

  auto config = Load(options);
  if (!config.ok()) {
    std::cerr << "gemmd: " << config.status().message() << "\n";
    return kBadConfig;
  }
  if (options.print_config) std::cout << PrintConfig(*config);
  if (options.check) {
    const absl::Status files = Server::CheckFiles(*config);
    if (!files.ok()) std::cerr << "gemmd: " << options.config << ": " << files.message() << "\n";
    return files.ok() ? kOk : kBadConfig;
  }
  if (options.print_config) return kOk;
  auto server = Server::Start(*config);
  if (!server.ok()) {
    std::cerr << "gemmd: " << server.status().message() << "\n";
    return absl::IsInvalidArgument(server.status()) ? kBadConfig : kFailed;
  }
  if (!options.ready_file.empty() && !WriteReadyFile(options.ready_file, **server)) {
    std::cerr << "gemmd: cannot write " << options.ready_file << "\n";
    return kFailed;
  }
  bool no_device = false;
  for (int signal = 0; signal != SIGTERM && signal != SIGINT && !no_device;) {
    signal = signals.Next(kWatchEvery);
    if (signal == SIGHUP) Reload(options, **server);
    no_device = (*server)->WatchDevices() == 0;
  }
  const bool answered = (*server)->Drain([&] {
    const int signal = signals.Next(absl::ZeroDuration());
    return signal == SIGTERM || signal == SIGINT;
  });
  server->reset();
  if (no_device) return kNoDevice;
  return answered ? kOk : kCutShort;
}

}  // namespace
}  // namespace gemmd::server

int main(int argc, char** argv) {
  return gemmd::server::Run(gemmd::server::ParseOptions(argc, argv));
}
