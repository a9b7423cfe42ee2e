#include <limits>

#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/args/printable.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr absl::string_view kLevels[] = {"debug", "info", "warning", "error"};
constexpr Flag kLogFlags[] = {
    ChoiceFlag("level", kLevels, "log from this level on"),
    CountFlag("sample", "N", "log one in N successful calls at level info; 0 logs none"),
};

absl::Status RunLog(Invocation& call) {
  client::LogChange change = {.level = call.args.Text("level")};
  if (call.args.Given("sample")) {
    const int64_t sample = call.args.Count("sample");
    if (sample > std::numeric_limits<int32_t>::max()) {
      return WithExit(ExitCode::kUsage, absl::InvalidArgumentError(absl::StrCat(
                                            "--sample=", sample, " is above 2147483647")));
    }
    change.sample_calls = static_cast<int32_t>(sample);
  }
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  const bool changes = !change.level.empty() || change.sample_calls.has_value();
  const absl::StatusOr<client::LogSettings> settings =
      changes ? client.SetLog(change) : client.GetLog();
  if (!settings.ok()) return settings.status();
  call.out.Result(
      {{"level", settings->level}, {"sample_calls", settings->sample_calls}},
      absl::StrCat("level   ", Printable(settings->level), "\nsample  ", settings->sample_calls,
                   settings->sample_calls == 0 ? " (no successful calls)\n" : "\n"));
  return absl::OkStatus();
}

}  // namespace

const Command kLogCommand = {
    .name = "log",
    .summary = "show or change what a running daemon logs",
    .details =
        "Without flags it shows, for observers and admins; with them it changes, for admins. A "
        "change holds until the next one, or until the daemon reads its config again.",
    .flags = kLogFlags,
    .run = RunLog};

}  // namespace gemmd::cli
