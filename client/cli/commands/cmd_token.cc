#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/new_token.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr absl::string_view kRoles[] = {"user", "observer", "admin"};
constexpr Flag kTokenFlags[] = {
    TextFlag("name", "NAME", "what the server's log calls whoever shows the token"),
    TextFlag("tenant", "TENANT", "of the server's config, whose work it is", "default"),
    ChoiceFlag("role", kRoles, "what it may do", "user"),
    DurationFlag("expires", "TIME",
                 "how long the server takes it, such as 90d; by default for ever"),
    {.name = "output",
     .letter = 'o',
     .kind = ValueKind::kFile,
     .value = "FILE",
     .help = "write the token there, for its owner's eyes, and print the line alone"},
};

// A new file that nobody else may read: an existing one could be somebody's token, or a link.
absl::Status WriteSecret(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (file >= 0) written = close(file) == 0 && written;
  if (written) return absl::OkStatus();
  if (file >= 0) unlink(path.c_str());
  return WithExit(ExitCode::kBadFile, absl::FailedPreconditionError(absl::StrCat(
                                          "cannot write '", path, "': ", strerror(error))));
}

absl::Status RunToken(Invocation& call) {
  TokenLine line = {.name = call.args.Text("name"),
                    .tenant = call.args.Text("tenant"),
                    .role = call.args.Text("role")};
  if (absl::Status fits = Check(line); !fits.ok()) return WithExit(ExitCode::kUsage, fits);
  if (call.args.Given("expires")) line.expires = absl::Now() + call.args.Duration("expires");
  const absl::StatusOr<std::string> token = NewToken();
  if (!token.ok()) return WithExit(ExitCode::kInternal, token.status());
  const std::string text = Text(line, *token);
  const std::string file = call.args.Text("output");
  if (file.empty()) {
    call.out.Result({{"token", *token}, {"line", text}},
                    absl::StrCat("token  ", *token, "\nline   ", text, "\n"));
    return absl::OkStatus();
  }
  GEMMD_RETURN_IF_ERROR(WriteSecret(file, absl::StrCat(*token, "\n")));
  call.out.Result({{"file", file}, {"line", text}}, absl::StrCat(text, "\n"));
  return absl::OkStatus();
}

}  // namespace

const Command kTokenCommand = {
    .name = "token",
    .summary = "make a bearer token, and the line that lets a server know it",
    .details =
        "Asks no server. The line goes into the file that auth.token_file names, which the daemon "
        "reads again by itself; the token goes to whoever is to use it, in a file for "
        "--token-file. The line has the token's hash and is no secret.\n"
        "To rotate a token, add the new line, hand the new token out, and take the old line away "
        "once nobody shows the old one.\n"
        "  gemmctl token --name ci --tenant batch --expires 90d -o ci.token >>tokens",
    .flags = kTokenFlags,
    .run = RunToken};

}  // namespace gemmd::cli
