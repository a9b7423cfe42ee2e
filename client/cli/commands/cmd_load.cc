#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/args/printable.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/load/checkpoint.h"
#include "client/cli/load/loader.h"
#include "client/cli/load/weight.h"
#include "client/cli/progress.h"
#include "client/cli/published.h"
#include "client/cli/quantize.h"
#include "client/cli/transfers.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr absl::string_view kQuantizeChoices[] = {"none", "fp8-block", "fp8-row"};
constexpr Positional kLoadPositionals[] = {
    {.name = "PATH",
     .help = "FILE.safetensors, a folder with a checkpoint, or its index (.json)",
     .kind = ValueKind::kFile},
};
constexpr Flag kLoadFlags[] = {
    TextFlag("prefix", "NAME", "publish below this: m/layer.0.w; m@2 loads version 2 of m"),
    ChoiceFlag("quantize", kQuantizeChoices,
               "matrices of floats, on the device, to E4M3; fp8-block: with scales of 128x128, "
               "fp8-row: with one a row",
               "none"),
    TextFlag("only", "PATTERN", "tensors whose names match, such as '*.weight'"),
    TextFlag("skip", "PATTERN", "but not these"),
    {.name = "switch", .help = "make the version of --prefix current once all of it is there"},
    DurationFlag("ttl", "TIME", "unpublish what no session has held for so long, 1s or more"),
    CountFlag("jobs", "N", "tensors at a time", "4", 1),
    TextFlag("device", "NAME", "where to; default: the server chooses"),
    ChoiceFlag("route", kRouteNames, "how bytes travel", "auto"),
};
constexpr int64_t kMostJobs = 64;

void WarnOfF64(const std::vector<Weight>& weights, const Output& out) {
  const auto narrowed = std::count_if(weights.begin(), weights.end(), [](const Weight& weight) {
    return weight.values->dtype == files::DType::kF64;
  });
  if (narrowed == 0) return;
  out.Note(absl::StrCat("warning: ", narrowed,
                        " tensors of float64 are narrowed to float32; save as float32 what needs "
                        "no more"));
}

std::string Text(const LoadReport& report) {
  std::string text = absl::StrCat("loaded ", report.loaded, " of ", report.weights, " weights");
  if (report.loaded > 0) absl::StrAppend(&text, ": ", TransferText(report.transfers));
  return absl::StrCat(text, "\n", report.found, " were there (",
                      HumanBytes(static_cast<double>(report.found_bytes)), "); ",
                      HumanSeconds(report.seconds), " in all\n");
}

Json Document(const LoadReport& report, const std::string& prefix) {
  return {{"prefix", prefix},
          {"weights", report.weights},
          {"loaded", report.loaded},
          {"found", report.found},
          {"moved_bytes", report.moved_bytes},
          {"found_bytes", report.found_bytes},
          {"seconds", report.seconds},
          {"transfer", TransferJson(report.transfers)}};
}

// What is there after a load that failed on the way.
absl::Status Stopped(const absl::Status& status, const LoadReport& report) {
  if (report.loaded + report.found == 0) return status;
  absl::Status told(
      status.code(),
      absl::StrCat(status.message(), "; ", report.loaded + report.found, " of ", report.weights,
                   " weights are published and stay, the rest left nothing behind: "
                   "the same command goes on from there"));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { told.SetPayload(url, payload); });
  return told;
}

absl::Status RunLoad(Invocation& call) {
  WeightOptions wanted = {.prefix = call.args.Text("prefix"),
                          .quantize = QuantizeModeOf(call.args.Text("quantize")).b,
                          .only = call.args.Text("only"),
                          .skip = call.args.Text("skip")};
  std::optional<VersionedPrefix> version;
  if (call.args.On("switch")) {
    absl::StatusOr<VersionedPrefix> parsed = ParseVersion(wanted.prefix);
    if (!parsed.ok()) {
      return WithExit(ExitCode::kUsage, absl::InvalidArgumentError(
                                            absl::StrCat("--switch: ", parsed.status().message())));
    }
    version = *parsed;
  }
  absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(call.args.Positional(0));
  if (!checkpoint.ok()) return WithExit(ExitCode::kBadFile, checkpoint.status());
  absl::StatusOr<std::vector<Weight>> weights = WeightsOf(*checkpoint, wanted);
  if (!weights.ok()) return WithExit(ExitCode::kBadFile, weights.status());
  WarnOfF64(*weights, call.out);
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kWork));
  GEMMD_ASSIGN_OR_RETURN(
      client::Session session,
      client.OpenSession({.label = "gemmctl load", .device = call.args.Text("device")}));
  LoadOptions options = {
      .jobs = static_cast<int>(std::min(call.args.Count("jobs"), kMostJobs)),
      .route = RouteOf(call.args.Text("route")),
      .progress = ProgressLine(call.out, "loading"),
  };
  if (call.args.Given("ttl")) options.ttl = call.args.Duration("ttl");
  LoadReport report;
  const absl::Status loaded = LoadWeights(client, session, *weights, options, report);
  if (!loaded.ok()) return Stopped(loaded, report);
  Json document = Document(report, wanted.prefix);
  std::string text = Text(report);
  if (version) {
    GEMMD_ASSIGN_OR_RETURN(client::VersionSwitch switched,
                           client.SwitchVersion(version->name, version->version));
    document["switched"] = SwitchDocument(*version, switched);
    absl::StrAppend(&text, SwitchText(*version, switched));
  }
  call.out.Result(document, text);
  return absl::OkStatus();
}

}  // namespace

const Command kLoadCommand = {
    .name = "load",
    .summary = "publish a checkpoint's tensors, each under its name",
    .details =
        "  gemmctl load model/ --prefix m --quantize fp8-block\n\n"
        "A tensor is published as soon as it is whole, with a hash of its content. Run the command "
        "again after an interruption, or from another worker: what is there with the same content "
        "is not moved. A name that has other content is refused; load that as a new version:\n\n"
        "  gemmctl load model-b/ --prefix m@2 --switch\n\n"
        "E4M3 matrices take the scales along that the checkpoint holds for them (NAME_scale_inv "
        "or NAME_scale): of 128x128, one a row, or one for all. Matrices can be used as @m/NAME of "
        "'gemmctl matmul', and by name in gemmd.Linear of Python.",
    .positionals = kLoadPositionals,
    .flags = kLoadFlags,
    .run = RunLoad};

}  // namespace gemmd::cli
