#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/args/printable.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/load_file.h"
#include "client/cli/progress.h"
#include "client/cli/quantize.h"
#include "client/cli/transfers.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Positional kDownloadPositionals[] = {
    {.name = "NAME",
     .help = "a published name, or with --session a buffer's id in hex",
     .names = Names::kPublished},
    {.name = "FILE",
     .help = "FILE.npy or FILE.safetensors[:NAME] to write",
     .kind = ValueKind::kFile},
};
constexpr Flag kDownloadFlags[] = {
    kForceFlag,
    TextFlag("session", "ID", "the session that the buffer's id is of, in hex"),
    ChoiceFlag("route", kRouteNames, "how bytes travel", "auto"),
};

absl::Status Usage(const absl::Status& status) { return WithExit(ExitCode::kUsage, status); }

// By id in a session that exists, or by name in one opened for this.
absl::StatusOr<client::Session> OpenSession(const Args& args, client::Client& client) {
  if (!args.Given("session")) return client.OpenSession({.label = "gemmctl download"});
  absl::StatusOr<client::Handle> id = client::Handle::FromHex(args.Text("session"));
  if (!id.ok()) return Usage(id.status());
  return client.AttachSession(*id);
}

absl::StatusOr<client::Buffer> FindBuffer(const Args& args, client::Session& session) {
  if (!args.Given("session")) return session.Find(args.Positional(0));
  absl::StatusOr<client::Handle> id = client::Handle::FromHex(args.Positional(0));
  if (!id.ok()) return Usage(id.status());
  return session.AttachBuffer(*id);
}

absl::Status RunDownload(Invocation& call) {
  const std::string path = call.args.Positional(1);
  absl::StatusOr<files::MatrixPath> parsed = files::ParseMatrixPath(path);
  if (!parsed.ok()) return Usage(parsed.status());
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kWork));
  GEMMD_ASSIGN_OR_RETURN(client::Session session, OpenSession(call.args, client));
  GEMMD_ASSIGN_OR_RETURN(client::Buffer buffer, FindBuffer(call.args, session));
  std::vector<int64_t> shape(buffer.shape().begin(), buffer.shape().end());
  files::DType dtype = ToFile(buffer.dtype());
  if (buffer.dtype() == client::DType::kUnspecified || shape.empty()) {
    call.out.Note("the buffer was created without a type: written as bytes (i8)");
    dtype = files::DType::kI8;
    shape = {buffer.size_bytes()};
  }
  GEMMD_ASSIGN_OR_RETURN(files::MatrixWriter writer, CreateFile(call.args, path, dtype, shape));
  client::TransferOptions options;
  options.progress = ProgressLine(call.out, "downloading " + call.args.Positional(0));
  options.route = RouteOf(call.args.Text("route"));
  const absl::Span<std::byte> data = writer.data();
  GEMMD_ASSIGN_OR_RETURN(
      client::TransferReport moved,
      buffer.Download(absl::MakeSpan(reinterpret_cast<char*>(data.data()), data.size()), 0,
                      options));
  GEMMD_RETURN_IF_ERROR(CommitFile(writer));
  call.out.Result({{"name", call.args.Positional(0)},
                   {"file", path},
                   {"dtype", std::string(files::DTypeName(dtype))},
                   {"shape", shape},
                   {"transfer", TransferJson(moved)}},
                  absl::StrCat("wrote ", Printable(path), ": ", files::DTypeName(dtype), " ",
                               files::ShapeText(shape), "; ", TransferText(moved), "\n"));
  return absl::OkStatus();
}

}  // namespace

const Command kDownloadCommand = {.name = "download",
                                  .summary = "write a buffer of the server to a file",
                                  .details =
                                      "Without --force a file that exists is refused. With it the "
                                      "old file stays until everything "
                                      "has arrived.",
                                  .positionals = kDownloadPositionals,
                                  .flags = kDownloadFlags,
                                  .run = RunDownload};

}  // namespace gemmd::cli
