#include "bench/serving/run.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/floor/echo_client.h"
#include "bench/floor/kept_memory.h"
#include "bench/floor/peer_process.h"
#include "bench/serving/soak.h"
#include "bench/serving/suite.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/connect.h"
#include "client/cli/device_view.h"
#include "client/cli/files/new_file.h"
#include "gemmd/v1/device_service.pb.h"

namespace gemmd::bench {
namespace {

struct Place {
  v1::Device device;  // --device, or what the server chooses
  std::vector<std::string> other_devices;
  std::string share_socket;
  std::string version;
};

absl::StatusOr<Place> FindPlace(client::Client& client, const std::string& name) {
  absl::StatusOr<v1::ServerInfo> info = client.GetServerInfo();
  if (!info.ok()) return info.status();
  absl::StatusOr<std::vector<v1::Device>> devices = client.ListDevices();
  if (!devices.ok()) return devices.status();
  std::string chosen = name;
  if (chosen.empty()) {
    absl::StatusOr<client::Session> session = client.OpenSession({.label = "gemmd_bench"});
    if (!session.ok()) return session.status();
    chosen = session->device();
  }
  Place place = {.share_socket = info->share_socket(), .version = info->version()};
  for (const v1::Device& device : *devices) {
    if (device.name() == chosen) place.device = device;
  }
  if (place.device.name().empty()) {
    return absl::NotFoundError(
        absl::StrCat("the daemon has no device ", chosen, "; 'gemmctl info' lists those it has"));
  }
  for (const v1::Device& device : *devices) {
    const bool alike = device.architecture() == place.device.architecture() &&
                       device.model() == place.device.model();
    // CPU devices are one machine's cores, whatever their number.
    if (alike && device.name() != chosen && !device.gpu_uuid().empty()) {
      place.other_devices.push_back(device.name());
    }
  }
  return place;
}

// 0 when it is unset or no number.
int64_t EnvironmentNumber(const char* name) {
  const char* const text = std::getenv(name);
  int64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : 0;
}

cli::Json Document(const char* suite, const std::string& target, const Place& place, bool quick,
                   const std::vector<Figure>& figures) {
  cli::Json document = {
      {"suite", suite},
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone())},
      {"server", target},
      {"version", place.version},
      {"quick", quick},
      {"cores", std::thread::hardware_concurrency()},
      {"busy_poll_us", EnvironmentNumber("GEMMD_BUSY_POLL_US")},
      {"device", cli::DeviceJson(place.device)},
      {"short", 0},
      {"figures", cli::Json::object()}};
  int fallen_short = 0;
  for (const Figure& figure : figures) {
    document["figures"][figure.key] = FigureJson(figure);
    if (figure.seen.has_value() && !figure.ok()) ++fallen_short;
  }
  document["short"] = fallen_short;
  return document;
}

absl::Status Finish(cli::Invocation& call, const cli::Json& document,
                    const std::vector<Figure>& figures) {
  if (const std::string path = call.args.Text("out"); !path.empty()) {
    absl::StatusOr<files::NewFile> file = files::NewFile::Create(path, files::Existing::kReplace);
    absl::Status written = file.status();
    if (written.ok()) {
      written =
          file->Write(document.dump(2, ' ', false, cli::Json::error_handler_t::replace) + "\n");
    }
    if (written.ok()) written = file->Commit();
    if (!written.ok()) return cli::WithExit(cli::ExitCode::kBadFile, written);
  }
  call.out.Result(document, FigureTable(figures));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunServingSuite(cli::Invocation& call) {
  KeepFreedMemory();
  const std::string target = call.args.Text("server");
  // Before any gRPC thread exists in this process: the child is a fork of it.
  absl::StatusOr<std::unique_ptr<PeerProcess>> peer = PeerProcess::Start(target);
  if (!peer.ok()) return cli::WithExit(cli::ExitCode::kInternal, peer.status());
  absl::StatusOr<client::Client> client = cli::Connect(call.args, cli::CallKind::kWork);
  if (!client.ok()) return client.status();
  absl::StatusOr<Place> place = FindPlace(*client, call.args.Text("device"));
  if (!place.ok()) return place.status();
  absl::StatusOr<client::Session> session =
      client->OpenSession({.label = "gemmd_bench serving", .device = place->device.name()});
  if (!session.ok()) return session.status();
  EchoClient echo((*peer)->target());
  const ServingSizes sizes = call.args.On("quick") ? QuickSizes() : ServingSizes();
  const Serving serving = {.client = *client,
                           .session = *session,
                           .echo = echo,
                           .sizes = sizes,
                           .target = target,
                           .options = cli::ClientOptionsOf(call.args, cli::CallKind::kWork),
                           .device = place->device.name(),
                           .other_devices = place->other_devices,
                           .share_socket = place->share_socket,
                           .small_target = call.args.Text("small"),
                           .large_target = call.args.Text("large"),
                           .python = {call.args.Text("python"), cli::SecurityFlags(call.args)},
                           .only = call.args.Text("only"),
                           .lookahead = call.args.Duration("lookahead")};
  const absl::Time start = absl::Now();
  const std::vector<Figure> figures = MeasureServing(serving, [&](const std::string& what) {
    call.out.Note(absl::StrCat("measuring ", what, " (", absl::ToInt64Seconds(absl::Now() - start),
                               " s so far) ..."));
  });
  if (figures.empty()) {
    return cli::WithExit(cli::ExitCode::kUsage, absl::InvalidArgumentError(absl::StrCat(
                                                    "--only ", serving.only,
                                                    ": no measurement has it in "
                                                    "its name; leave it out to see them all")));
  }
  return Finish(call, Document("serving", target, *place, call.args.On("quick"), figures), figures);
}

absl::Status RunSoakSuite(cli::Invocation& call) {
  KeepFreedMemory();
  const std::string target = call.args.Text("server");
  absl::StatusOr<client::Client> client = cli::Connect(call.args, cli::CallKind::kWork);
  if (!client.ok()) return client.status();
  absl::StatusOr<Place> place = FindPlace(*client, call.args.Text("device"));
  if (!place.ok()) return place.status();
  const SoakSpec spec = {.target = target,
                         .options = cli::ClientOptionsOf(call.args, cli::CallKind::kWork),
                         .device = place->device.name(),
                         .share_socket = place->share_socket,
                         .ops = call.args.Count("ops")};
  absl::StatusOr<std::vector<Figure>> figures =
      MeasureSoak(*client, spec, [&](const std::string& what) { call.out.Note(what); });
  if (!figures.ok()) return figures.status();
  absl::Status written =
      Finish(call, Document("soak", target, *place, /*quick=*/false, *figures), *figures);
  if (!written.ok()) return written;
  const auto grown = std::count_if(figures->begin(), figures->end(), [](const Figure& figure) {
    return figure.seen.has_value() && !figure.ok();
  });
  if (grown == 0) return absl::OkStatus();
  return cli::WithExit(cli::ExitCode::kCheckFailed,
                       absl::FailedPreconditionError(absl::StrCat(
                           "the daemon has grown: ", grown, " of ", figures->size(), " figures")));
}

}  // namespace gemmd::bench
