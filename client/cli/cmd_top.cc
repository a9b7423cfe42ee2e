#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/top/sample.h"
#include "client/cli/top/view.h"

namespace gemmd::cli {
namespace {

constexpr size_t kMaxSessions = 20;  // what fits a screen
constexpr Flag kFlags[] = {
    DurationFlag("interval", "TIME", "between two looks; loads are over that time", "1s"),
    {.name = "once", .help = "one table over one interval, then end; --json implies it"},
    TextFlag("metrics", "HOST:PORT",
             "the daemon's metrics.address: shows every tenant and the queues by priority, too"),
};

absl::Status RunTop(Invocation& call) {
  const std::string target = call.args.Text("server");
  const std::string metrics = call.args.Text("metrics");
  const bool once = call.args.On("once") || call.out.json();
  absl::StatusOr<client::Client> client = Connect(call.args, CallKind::kLookUp);
  if (!client.ok()) return client.status();
  absl::StatusOr<TopSample> before = Look(*client, metrics);
  if (!before.ok()) return Explained(before.status(), target);
  // To a terminal each table takes the last one's place; into a file or a pipe they follow it.
  const bool clears = !once && isatty(STDOUT_FILENO) != 0;
  for (;;) {
    if (absl::Status read = call.out.Pause(call.args.Duration("interval")); !read.ok()) return read;
    absl::StatusOr<TopSample> after = Look(*client, metrics);
    if (!after.ok()) return Explained(after.status(), target);
    const TopLoad load = LoadBetween(*before, *after);
    const std::string text = TopText(*after, load, kMaxSessions);
    if (once) {
      call.out.Result(TopJson(*after, load), text);
      return absl::OkStatus();
    }
    const absl::Status shown = call.out.Screen(absl::StrCat(text, clears ? "" : "\n"), clears);
    if (!shown.ok()) return shown;
    before = std::move(after);
  }
}

}  // namespace

const Command kTopCommand = {.name = "top",
                             .summary = "watch devices, queues, tenants and sessions at work",
                             .details =
                                 "Until it is interrupted, or nobody reads what it prints. "
                                 "Sessions are the caller's tenant's; what other tenants "
                                 "use is in the metrics alone.",
                             .flags = kFlags,
                             .run = RunTop};

}  // namespace gemmd::cli
