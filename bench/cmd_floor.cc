#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/floor/echo_client.h"
#include "bench/floor/kept_memory.h"
#include "bench/floor/peer_process.h"
#include "bench/floor/suite.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/connect.h"

namespace gemmd::bench {
namespace {

constexpr cli::Flag kFloorFlags[] = {
    cli::TextFlag("device", "NAME", "where; default: the server chooses"),
    cli::FileFlag("python", "PATH", "the interpreter that has the package gemmd", "python3"),
};

absl::Status RunFloor(cli::Invocation& call) {
  KeepFreedMemory();
  const std::string target = call.args.Text("server");
  // Before any gRPC thread exists in this process: the child is a fork of it.
  absl::StatusOr<std::unique_ptr<PeerProcess>> peer = PeerProcess::Start(target);
  if (!peer.ok()) return cli::WithExit(cli::ExitCode::kInternal, peer.status());
  absl::StatusOr<client::Client> client = cli::Connect(call.args, cli::CallKind::kWork);
  if (!client.ok()) return client.status();
  absl::StatusOr<client::Session> session =
      client->OpenSession({.label = "gemmd_bench floor", .device = call.args.Text("device")});
  if (!session.ok()) return session.status();
  EchoClient echo((*peer)->target());
  const Floor floor = {.client = *client,
                       .session = *session,
                       .echo = echo,
                       .peer = **peer,
                       .target = target,
                       .python = {call.args.Text("python"), cli::SecurityFlags(call.args)}};
  absl::StatusOr<std::vector<Ratio>> ratios = MeasureFloor(floor, [&](const std::string& what) {
    call.out.Note(absl::StrCat("measuring ", what, " ..."));
  });
  if (!ratios.ok()) return ratios.status();
  cli::Json document = {
      {"suite", "floor"}, {"server", target}, {"cores", std::thread::hardware_concurrency()}};
  int missed = 0;
  for (const Ratio& ratio : *ratios) {
    document[std::string(ratio.spec.key)] =
        ratio.measured() ? cli::Json(ratio.value()) : cli::Json();
    missed += ratio.pass() ? 0 : 1;
  }
  document["pass"] = missed == 0;
  for (const Ratio& ratio : *ratios)
    document["detail"][std::string(ratio.spec.key)] = RatioJson(ratio);
  call.out.Result(document, RatioTable(*ratios));
  if (missed == 0) return absl::OkStatus();
  return cli::WithExit(cli::ExitCode::kCheckFailed,
                       absl::FailedPreconditionError(absl::StrCat(missed, " of ", ratios->size(),
                                                                  " ratios miss their target")));
}

}  // namespace

const cli::Command kFloorCommand = {
    .name = "floor",
    .summary = "what the daemon adds to its parts: gRPC, memcpy, OpenBLAS",
    .details =
        "Each part against the bare one in turns in the same run: Execute and Queue against gRPC "
        "echoes, uploads against a raw\n"
        "stream and memcpy, matmuls against OpenBLAS, Python against C++. Exit code 1 when a ratio "
        "misses its target; one\n"
        "that cannot be measured is null and says why.",
    .flags = kFloorFlags,
    .run = RunFloor};

}  // namespace gemmd::bench
