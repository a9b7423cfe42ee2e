#include "bench/commands.h"
#include "bench/serving/run.h"

namespace gemmd::bench {
namespace {

constexpr cli::Flag kFlags[] = {
    {.name = "device",
     .kind = cli::ValueKind::kText,
     .value = "NAME",
     .help = "where; default: the server chooses"},
    {.name = "python",
     .kind = cli::ValueKind::kFile,
     .value = "PATH",
     .fallback = "python3",
     .help = "the interpreter that has the package gemmd"},
    {.name = "only",
     .kind = cli::ValueKind::kText,
     .value = "TEXT",
     .help = "the measurements whose names contain it; the names are what it tells "
             "on its way"},
    {.name = "quick", .help = "in seconds, on any device; the figures mean nothing"},
    {.name = "small",
     .kind = cli::ValueKind::kText,
     .value = "TARGET",
     .help = "a listener of a tenant that sends small programs"},
    {.name = "large",
     .kind = cli::ValueKind::kText,
     .value = "TARGET",
     .help = "and of one that sends large ones, both of the same weight"},
    {.name = "lookahead",
     .kind = cli::ValueKind::kDuration,
     .value = "TIME",
     .fallback = "2ms",
     .help = "the daemon's scheduler.lookahead_us"},
    {.name = "out",
     .kind = cli::ValueKind::kFile,
     .value = "FILE",
     .help = "the document of --json into a file, beside the table"},
};

}  // namespace

const cli::Command kServingCommand = {
    .name = "serving",
    .summary = "what calling the daemon costs over calling its kernels",
    .details =
        "Execute, Queue, a plan of a decode step, uploads, two devices, two tenants (--small and "
        "--large), workers that share a\n"
        "weight. Wants a daemon of this host that nobody else uses.",
    .flags = kFlags,
    .run = RunServingSuite};

}  // namespace gemmd::bench
