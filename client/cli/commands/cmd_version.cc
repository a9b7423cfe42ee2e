#include "absl/strings/str_cat.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"

namespace gemmd::cli {
namespace {

absl::Status RunVersion(Invocation& call) {
  call.out.Result({{"version", GEMMD_VERSION}},
                  absl::StrCat(call.table.program, " ", GEMMD_VERSION, "\n"));
  return absl::OkStatus();
}

}  // namespace

const Command kVersionCommand = {
    .name = "version",
    .summary = "print this program's version ('gemmctl info' has the server's)",
    .run = RunVersion};

}  // namespace gemmd::cli
