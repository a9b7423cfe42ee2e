#include "bench/commands.h"
#include "bench/serving/run.h"

namespace gemmd::bench {
namespace {

constexpr cli::Flag kFlags[] = {
    {.name = "device",
     .kind = cli::ValueKind::kText,
     .value = "NAME",
     .help = "where; default: the server chooses"},
    {.name = "ops",
     .kind = cli::ValueKind::kCount,
     .value = "N",
     .fallback = "200000",
     .help = "how many",
     .min = 10},
    {.name = "out",
     .kind = cli::ValueKind::kFile,
     .value = "FILE",
     .help = "the document of --json into a file, beside the table"},
};

}  // namespace

const cli::Command kSoakCommand = {
    .name = "soak",
    .summary = "many mixed ops, and whether the daemon has grown",
    .details = "Exit code 1 when it has. Wants a daemon of this host that nobody else uses.",
    .flags = kFlags,
    .run = RunSoakSuite};

}  // namespace gemmd::bench
