#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/page.h"
#include "client/cli/args/parser.h"
#include "client/cli/args/terminal.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/top/sample.h"
#include "client/cli/top/view.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr size_t kMaxSessions = 20;  // what fits a screen
constexpr Flag kTopFlags[] = {
    DurationFlag("interval", "TIME", "between two looks; loads are over that time", "1s"),
    {.name = "once", .help = "one page over one interval, then end; --json implies it"},
    TextFlag("metrics", "HOST:PORT",
             "the daemon's metrics.address: shows every tenant and the queues by priority, too"),
};

absl::Status RunTop(Invocation& call) {
  const std::string metrics = call.args.Text("metrics");
  const bool once = call.args.On("once") || call.out.json();
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  absl::StatusOr<TopSample> before = Look(client, metrics);
  if (!before.ok()) return before.status();
  // A terminal gets a screen of its own, where each page takes the last one's place. Into a file or
  // a pipe they follow one another.
  std::optional<FullScreen> screen;
  if (!once && FullScreen::Possible()) screen.emplace();
  const absl::Duration interval = call.args.Duration("interval");
  if (screen) {
    Page first;
    first.Line(absl::StrCat("the first figures are there in ", absl::FormatDuration(interval),
                            "; q quits"));
    GEMMD_RETURN_IF_ERROR(call.out.Screen(first, screen->Fit(), true));
  }
  for (;;) {
    if (screen) {
      if (screen->WaitForQuit(interval)) return absl::OkStatus();
    } else if (absl::Status read = call.out.Pause(interval); !read.ok()) {
      return read;
    }
    absl::StatusOr<TopSample> after = Look(client, metrics);
    if (!after.ok()) {
      screen.reset();  // or the error would go with it
      return after.status();
    }
    const TopLoad load = LoadBetween(*before, *after);
    const Page page = TopPage(*after, load, kMaxSessions);
    if (once) {
      call.out.Result(TopJson(*after, load), page);
      return absl::OkStatus();
    }
    const PageFit fit = screen ? screen->Fit() : FitOfStdout();
    GEMMD_RETURN_IF_ERROR(call.out.Screen(page, fit, screen.has_value()));
    before = std::move(after);
  }
}

}  // namespace

const Command kTopCommand = {
    .name = "top",
    .summary = "watch devices, queues, tenants and sessions at work",
    .details =
        "On a terminal until q is pressed; else until it is interrupted, or nobody reads what it "
        "prints. Columns that have no room are named below their table. "
        "Sessions are the caller's tenant's; what other tenants "
        "use is in the metrics alone.",
    .flags = kTopFlags,
    .run = RunTop};

}  // namespace gemmd::cli
