#include "server/options.h"

#include <fcntl.h>
#include <getopt.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/config/per_device.h"
#include "server/default_listeners.h"
#include "server/engine/version.h"
#include "server/exit_status.h"

namespace gemmd::server {
namespace {

constexpr char kUsage[] =
    R"(usage: gemmd [--config FILE] [--supervise | --device NAME] [--listen ADDRESS]...

Without a config and an address gemmd serves on 127.0.0.1:8470 and on the Unix socket gemmd.sock in $XDG_RUNTIME_DIR/gemmd,
or without that variable in /run/gemmd for root and /tmp/gemmd-UID for others. Clients that are given no server look there.

  --config FILE      the config, a textproto of gemmd.v1.ServerConfig
  --listen ADDRESS   one more listener of tenant "default": 127.0.0.1:8470, unix:/path, unix-abstract:name
  --supervise        a process of its own for each of the config's devices, started again when it ends: a fault of one
                     GPU ends the work on the others of its process. In Unix addresses {device} becomes the device's
                     name ("cuda-1" for cuda:1) and has to be there when there are several; to TCP ports the device's
                     place in the config's list is added: 8470, 8471, ...
  --device NAME      serve this one of the config's devices and nothing else, at these addresses
  --check            only check the config, the files it names, and that its addresses can be bound; exit 0 or 2.
                     A GPU that this machine lacks is told, and is no error
  --print-config     print the config with every default filled in
  --ready-file FILE  write the listeners' addresses there, one a line, once serving; the metrics address last, as
                     "metrics ADDRESS". With --supervise "device NAME" stands before those of each device, and the file
                     is written again when a process has come back
  --ready-fd N       write them to this open descriptor, and close it
  --config-fd N      start with the config that this open descriptor gives, as --print-config shows it; SIGHUP reads FILE
  --version, --help

SIGTERM or SIGINT drains: health turns off, the notice passes, accepted work is answered. A second one stops at once.
SIGHUP reads the config again. Exit status: 0 drained, 1 could not start or run, 2 the config is wrong, 3 stopped before
all accepted work was answered, 4 drained because every device has faulted: start it again. With --supervise signals are
passed on; the status is the worst one of the processes that were told to drain, or that of one that could not start.
)";

}  // namespace

int Print(absl::string_view text) {
  errno = 0;
  std::cout << text << std::flush;
  if (std::cout.good()) return kOk;
  // Whoever closed a pipe has read enough.
  if (errno != EPIPE)
    std::cerr << "gemmd: cannot write to stdout: " << std::strerror(errno) << "\n";
  return kFailed;
}

namespace {

[[noreturn]] void Misuse(const std::string& what) {
  if (!what.empty()) std::cerr << "gemmd: " << what << "\n";
  std::cerr << kUsage;
  std::exit(kBadConfig);
}

int OpenDescriptor(const std::string& option, const char* text) {
  int fd = -1;
  if (!absl::SimpleAtoi(text, &fd) || fcntl(fd, F_GETFD) < 0) {
    Misuse(option + ": " + text + " is not an open descriptor; give its number");
  }
  return fd;
}

void Check(Options& options) {
  if (options.config.empty() && options.listen.empty()) options.listen = DefaultListeners();
  if (options.supervise && !options.device.empty()) {
    Misuse("--supervise and --device do not go together; give one of them");
  }
  if (options.supervise && options.ready_fd >= 0) {
    Misuse("--supervise takes no --ready-fd; give it a --ready-file");
  }
  if (options.supervise && options.config_fd >= 0) {
    Misuse("--supervise takes no --config-fd; give it a --config");
  }
  if (!HasDevicePlace(options.ready_file)) return;
  if (options.device.empty()) {
    Misuse("--ready-file: {device} is for --device NAME; write a name there");
  }
  options.ready_file = WithDeviceName(options.ready_file, options.device);
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
  static const option kOptions[] = {{"config", required_argument, nullptr, 'c'},
                                    {"listen", required_argument, nullptr, 'l'},
                                    {"device", required_argument, nullptr, 'd'},
                                    {"supervise", no_argument, nullptr, 's'},
                                    {"check", no_argument, nullptr, 'k'},
                                    {"print-config", no_argument, nullptr, 'p'},
                                    {"ready-file", required_argument, nullptr, 'r'},
                                    {"ready-fd", required_argument, nullptr, 'f'},
                                    {"config-fd", required_argument, nullptr, 'F'},
                                    {"version", no_argument, nullptr, 'v'},
                                    {"help", no_argument, nullptr, 'h'},
                                    {nullptr, 0, nullptr, 0}};
  Options options{.program = argv[0]};
  for (int c; (c = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (c) {
      case 'c':
        options.config = optarg;
        if (options.config.empty()) Misuse("--config: no file given; give one, or leave it out");
        break;
      case 'l':
        options.listen.push_back(optarg);
        break;
      case 'd':
        options.device = optarg;
        if (options.device.empty()) Misuse("--device: no name given; give one of the config's");
        break;
      case 's':
        options.supervise = true;
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
      case 'f':
        options.ready_fd = OpenDescriptor("--ready-fd", optarg);
        break;
      case 'F':
        options.config_fd = OpenDescriptor("--config-fd", optarg);
        break;
      case 'v':
        std::exit(Print(absl::StrCat("gemmd ", kVersion, "\n")));
      case 'h':
        std::exit(Print(kUsage));
      default:
        Misuse("");
    }
  }
  if (optind < argc) {
    const std::string extra = argv[optind];
    Misuse("unexpected argument '" + extra +
           "'; a config is given by --config FILE, an address by" + " --listen ADDRESS");
  }
  Check(options);
  return options;
}

std::vector<std::string> DeviceCommand(const Options& options, const std::string& device) {
  std::vector<std::string> command = {options.program, "--device", device};
  if (!options.config.empty()) command.insert(command.end(), {"--config", options.config});
  for (const std::string& address : options.listen) {
    command.insert(command.end(), {"--listen", address});
  }
  return command;
}

}  // namespace gemmd::server
