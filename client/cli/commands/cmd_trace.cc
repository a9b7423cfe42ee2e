#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/trace/chrome_trace.h"
#include "client/cli/trace/sink.h"
#include "client/cli/trace/summary.h"
#include "gemmd/v1/device_service.pb.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Flag kTraceFlags[] = {
    {.name = "output",
     .letter = 'o',
     .kind = ValueKind::kFile,
     .value = "FILE",
     .fallback = "trace.json",
     .help = "where the trace goes; - is stdout, and the summary then goes to stderr"},
    DurationFlag("for", "TIME", "how long, at most 10m", "5s"),
};

// For the last events to come, beyond the trace's own time, where --timeout says nothing else.
constexpr absl::Duration kGrace = absl::Seconds(10);

// Of the file; stdout's errors have an exit code of their own.
absl::Status BadFile(const absl::Status& status) {
  return ExitCodeOf(status) == ExitCode::kBrokenPipe ? status
                                                     : WithExit(ExitCode::kBadFile, status);
}

// A trace on its way from the daemon into a file.
class Tracing {
 public:
  explicit Tracing(const std::vector<v1::Device>& devices) : trace_(sink_.text()) {
    for (const v1::Device& device : devices) {
      trace_.AddDevice(device.name());
      summary_.AddDevice(device.name());
    }
  }

  absl::Status Open(const std::string& path) { return sink_.Open(path); }

  // False when it cannot be written.
  bool Take(const v1::TraceChunk& chunk) {
    if (chunk.has_begin_time()) {
      begin_time_ = google::protobuf::util::TimeUtil::ToString(chunk.begin_time());
      begun_ = absl::Now();
    }
    for (const v1::TraceEvent& event : chunk.events()) {
      trace_.Add(event);
      summary_.Add(event);
    }
    summary_.set_dropped(std::max(summary_.dropped(), chunk.dropped()));
    return sink_.FlushWhenMuch().ok();
  }

  bool begun() const { return !begin_time_.empty(); }
  absl::Duration age() const { return absl::Now() - begun_; }
  const TraceSummary& summary() const { return summary_; }

  // Ends the document, which then tells `about` of itself.
  absl::Status Finish(Json& about, absl::Duration lasted) {
    about["begin_time"] = begin_time_;
    about.update(summary_.ToJson(lasted));
    trace_.Close(about);
    return sink_.Commit();
  }

 private:
  Sink sink_;
  ChromeTrace trace_;
  TraceSummary summary_;
  std::string begin_time_;
  absl::Time begun_;
};

absl::Status RunTrace(Invocation& call) {
  const std::string target = call.args.Text("server");
  const std::string path = call.args.Text("output");
  const absl::Duration duration = call.args.Duration("for");
  const bool to_stdout = path == "-";
  if (to_stdout && call.out.json()) {
    return WithExit(
        ExitCode::kUsage,
        absl::InvalidArgumentError("--json and --output - both want stdout; give --output a file"));
  }
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::Device> devices, client.ListDevices());
  Tracing tracing(devices);
  if (absl::Status opened = tracing.Open(path); !opened.ok()) return BadFile(opened);

  const absl::Duration grace = call.args.Given("timeout") ? call.args.Duration("timeout") : kGrace;
  const absl::Status traced =
      client.Trace(duration, [&](const v1::TraceChunk& chunk) { return tracing.Take(chunk); },
                   {.timeout = duration + grace});
  if (!traced.ok() && !tracing.begun()) return traced;
  const absl::Duration lasted = traced.ok() ? duration : std::min(duration, tracing.age());
  Json about = {{"server", target}};
  if (absl::Status written = tracing.Finish(about, lasted); !written.ok()) return BadFile(written);

  const TraceSummary& summary = tracing.summary();
  if (summary.dropped() > 0) {
    call.out.Note(absl::StrCat(summary.dropped(),
                               " events came faster than they were taken: the trace has gaps"));
  }
  const std::string said =
      absl::StrCat(to_stdout ? "" : absl::StrCat("wrote ", path, ": "), summary.Text(lasted));
  about["file"] = path;
  if (to_stdout) {
    call.out.Note(said.substr(0, said.size() - 1));
  } else {
    call.out.Result(about, said);
  }
  // Cut short, by a drain for instance: what came is written, and the exit status says so.
  return traced;
}

}  // namespace

const Command kTraceCommand = {
    .name = "trace",
    .summary = "record what a daemon does, for Perfetto or chrome://tracing",
    .details =
        "Every program's wait, launch, run and ops by device, and every call and transfer by "
        "tenant, of all tenants: the daemon lets observers and admins alone. Open the file at "
        "ui.perfetto.dev, which reads it in the browser, or at chrome://tracing. A trace that the "
        "daemon cuts short is written as far as it came.",
    .flags = kTraceFlags,
    .run = RunTrace};

}  // namespace gemmd::cli
