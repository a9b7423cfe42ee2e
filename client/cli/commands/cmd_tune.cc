#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/args/printable.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/files/new_file.h"
#include "client/cli/tune/shapes.h"
#include "client/cli/tune/view.h"
#include "gemmd/v1/admin_service.pb.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Flag kTuneFlags[] = {
    NameFlag(Names::kDevices, "device",
             "as 'gemmctl info' names it; default: the first that can be tuned"),
    TextFlag("shapes", "MxNxK,..", "these; NxK stands for a weight with the usual numbers of rows"),
    {.name = "served", .help = "those that programs multiplied most"},
    {.name = "published", .help = "every published E4M3 matrix"},
    CountFlag("kernels", "N", "how many kernels a shape; default 8, 2 to 32"),
    FileFlag("export", "FILE", "measure nothing; write what was measured"),
    FileFlag("import", "FILE", "measure nothing; add what another daemon exported"),
};

// A few thousand shapes at most, some tenths of a second each.
constexpr absl::Duration kLongest = absl::Hours(2);
constexpr size_t kMostBytes = size_t{4} << 20;

absl::Status Usage(absl::string_view text) {
  return WithExit(ExitCode::kUsage, absl::InvalidArgumentError(text));
}

absl::Status Export(Invocation& call, client::Client& client) {
  GEMMD_ASSIGN_OR_RETURN(auto table, client.ExportTuning(call.args.Text("device")));
  const std::string path = call.args.Text("export");
  auto file = files::NewFile::Create(path, files::Existing::kReplace);
  absl::Status written = file.status();
  if (written.ok()) written = file->Write(table);
  if (written.ok()) written = file->Commit();
  if (!written.ok()) return WithExit(ExitCode::kBadFile, written);
  call.out.Result({{"file", path}, {"bytes", table.size()}}, absl::StrCat("wrote ", path, "\n"));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTable(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read '", path, "'"));
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() <= kMostBytes) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("'", path, "' is larger than ", kMostBytes, " bytes, which no tuning table is"));
}

absl::Status Import(Invocation& call, client::Client& client) {
  const std::string path = call.args.Text("import");
  auto table = ReadTable(path);
  if (!table.ok()) return WithExit(ExitCode::kBadFile, table.status());
  GEMMD_ASSIGN_OR_RETURN(auto skipped, client.ImportTuning(*table, call.args.Text("device")));
  if (!skipped.empty()) call.out.Note(absl::StrCat("left out: ", Printable(skipped)));
  call.out.Result({{"imported", path}, {"skipped", skipped}}, absl::StrCat("took ", path, "\n"));
  return absl::OkStatus();
}

absl::StatusOr<v1::TuneRequest> RequestOf(const Args& args) {
  v1::TuneRequest request;
  request.set_device(args.Text("device"));
  request.set_kernels(static_cast<int32_t>(std::min<int64_t>(args.Count("kernels"), 1 << 20)));
  if (args.Given("shapes")) {
    absl::Status added = AddShapes(args.Text("shapes"), request);
    if (!added.ok()) return WithExit(ExitCode::kUsage, added);
  }
  const bool all = !args.Given("shapes") && !args.On("served") && !args.On("published");
  request.set_served(all || args.On("served"));
  request.set_published(all || args.On("published"));
  return request;
}

absl::Status Measure(Invocation& call, client::Client& client) {
  GEMMD_ASSIGN_OR_RETURN(auto request, RequestOf(call.args));
  TuneView view;
  const bool bar = !call.out.quiet() && isatty(STDERR_FILENO) != 0;
  const absl::Duration limit =
      call.args.Given("timeout") ? call.args.Duration("timeout") : kLongest;
  const absl::Status tuned =
      client.Tune(request,
                  [&](const v1::TuneProgress& progress) {
                    view.Take(progress);
                    if (bar) std::fprintf(stderr, "\r%s\033[K", Printable(view.Bar()).c_str());
                    return true;
                  },
                  {.timeout = limit});
  if (bar && view.begun()) std::fprintf(stderr, "\r\033[K");
  // Cut short, by a drain for instance: what was measured is kept, and the exit status says so.
  if (view.begun()) call.out.Result(view.Document(), view.Text());
  return tuned;
}

absl::Status RunTune(Invocation& call) {
  const bool exports = call.args.Given("export");
  const bool imports = call.args.Given("import");
  if (exports && imports) return Usage("--export and --import are two commands; give one");
  if ((exports || imports) && (call.args.Given("shapes") || call.args.On("served") ||
                               call.args.On("published") || call.args.Given("kernels"))) {
    return Usage("--export and --import measure nothing; leave out what says what to measure");
  }
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  if (exports) return Export(call, client);
  if (imports) return Import(call, client);
  return Measure(call, client);
}

}  // namespace

const Command kTuneCommand = {
    .name = "tune",
    .summary = "measure a device's kernels and let it choose by the times",
    .details =
        "For admins. Without flags it measures what programs multiplied most and every published "
        "weight. Each measurement takes about half a millisecond of the device, when nobody else "
        "has work for it. What was measured counts from then on, and Ctrl-C keeps what there is. "
        "Times of two machines with the same GPU merge:\n\n"
        "  gemmctl tune --server A --export a.json\n"
        "  gemmctl tune --server B --import a.json",
    .flags = kTuneFlags,
    .run = RunTune};

}  // namespace gemmd::cli
