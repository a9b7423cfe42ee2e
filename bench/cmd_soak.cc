#include "bench/commands.h"
#include "bench/serving/run.h"

namespace gemmd::bench {
namespace {

constexpr cli::Flag kSoakFlags[] = {
    cli::TextFlag("device", "NAME", "where; default: the server chooses"),
    cli::CountFlag("ops", "N", "how many", "200000", 10),
    cli::FileFlag("out", "FILE", "the document of --json into a file, beside the table"),
};

}  // namespace

const cli::Command kSoakCommand = {
    .name = "soak",
    .summary = "many mixed ops, and whether the daemon has grown",
    .details = "Exit code 1 when it has. Wants a daemon of this host that nobody else uses.",
    .flags = kSoakFlags,
    .run = RunSoakSuite};

}  // namespace gemmd::bench
