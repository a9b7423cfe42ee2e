#include "bench/commands.h"
#include "bench/serving/run.h"

namespace gemmd::bench {
namespace {

constexpr cli::Flag kServingFlags[] = {
    cli::TextFlag("device", "NAME", "where; default: the server chooses"),
    cli::FileFlag("python", "PATH", "the interpreter that has the package gemmd", "python3"),
    cli::TextFlag("only", "TEXT",
                  "the measurements whose names contain it; the names are what it tells "
                  "on its way"),
    {.name = "quick", .help = "in seconds, on any device; the figures mean nothing"},
    cli::TextFlag("small", "TARGET", "a listener of a tenant that sends small programs"),
    cli::TextFlag("large", "TARGET", "and of one that sends large ones, both of the same weight"),
    cli::DurationFlag("lookahead", "TIME", "the daemon's scheduler.lookahead_us", "2ms"),
    cli::FileFlag("out", "FILE", "the document of --json into a file, beside the table"),
};

}  // namespace

const cli::Command kServingCommand = {
    .name = "serving",
    .summary = "what calling the daemon costs over calling its kernels",
    .details =
        "Execute, Queue, a plan of a decode step, uploads, two devices, two tenants (--small and "
        "--large), workers that share a\n"
        "weight. Wants a daemon of this host that nobody else uses.",
    .flags = kServingFlags,
    .run = RunServingSuite};

}  // namespace gemmd::bench
