#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/man.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"

namespace gemmd::cli {
namespace {

constexpr Positional kManPositionals[] = {
    {.name = "COMMAND",
     .help = "whose page; without it the program's",
     .required = false,
     .names = Names::kCommands},
};
constexpr Flag kManFlags[] = {
    FileFlag("into", "FOLDER", "write every page there, as NAME.1, and print none"),
};

absl::Status Write(const std::filesystem::path& folder, const std::vector<ManPage>& pages) {
  for (const ManPage& page : pages) {
    const std::filesystem::path path = folder / absl::StrCat(page.name, ".1");
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << page.text;
    file.close();
    if (!file) {
      return WithExit(ExitCode::kBadFile, absl::FailedPreconditionError(absl::StrCat(
                                              "cannot write '", path.string(),
                                              "'; --into takes a folder that exists")));
    }
  }
  return absl::OkStatus();
}

absl::Status RunMan(Invocation& call) {
  const std::vector<ManPage> pages = ManPages(call.table, GEMMD_VERSION);
  if (call.args.Given("into")) return Write(call.args.Text("into"), pages);
  const std::string topic = call.args.Positional(0);
  const std::string wanted =
      topic.empty() ? pages[0].name : absl::StrCat(call.table.program, "-", topic);
  for (const ManPage& page : pages) {
    if (page.name != wanted) continue;
    call.out.Text(page.text);
    return absl::OkStatus();
  }
  return WithExit(ExitCode::kUsage, absl::InvalidArgumentError(absl::StrCat(
                                        "there is no page of '", topic, "'; '", call.table.program,
                                        " help' lists the commands")));
}

}  // namespace

const Command kManCommand = {.name = "man",
                             .summary = "print a man page, or write them all",
                             .details = "  %PROGRAM% man matmul | man -l -",
                             .positionals = kManPositionals,
                             .flags = kManFlags,
                             .run = RunMan};

}  // namespace gemmd::cli
