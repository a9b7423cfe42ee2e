
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
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

constexpr Positional kUploadPositionals[] = {
    {.name = "FILE", .help = "FILE.npy or FILE.safetensors[:NAME]", .kind = ValueKind::kFile},
};
constexpr Flag kUploadFlags[] = {
    TextFlag("name", "NAME",
             "publish under this name; default: the tensor's name, or the file's without its "
             "folder and ending"),
    ChoiceFlag(
        "dtype", kInputDTypeNames,
        "what a .npy file's opaque elements are (numpy has no name for bf16, e4m3 and e5m2)"),
    NameFlag(Names::kDevices, "device", "where to; default: the server chooses"),
    ChoiceFlag("route", kRouteNames, "how bytes travel", "auto"),
};

// A published name is of [A-Za-z0-9._/-]; what else a file's name has becomes '-'.
std::string DefaultName(const std::string& path_text) {
  absl::StatusOr<files::MatrixPath> path = files::ParseMatrixPath(path_text);
  if (!path.ok()) return path_text;
  std::string name = path->tensor;
  if (name.empty()) {
    name = path->file.substr(path->file.rfind('/') + 1);
    name = name.substr(0, name.rfind('.'));
  }
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) {
        return !absl::ascii_isalnum(c) && c != '.' && c != '_' && c != '/' && c != '-';
      },
      '-');
  return name;
}

absl::Status RunUpload(Invocation& call) {
  const std::string path = call.args.Positional(0);
  GEMMD_ASSIGN_OR_RETURN(files::Matrix matrix, LoadFile(call, path));
  WarnOfNarrowing(call, {{path, matrix}});
  const std::string name = call.args.Given("name") ? call.args.Text("name") : DefaultName(path);
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kWork));
  GEMMD_ASSIGN_OR_RETURN(
      client::Session session,
      client.OpenSession({.label = "gemmctl upload", .device = call.args.Text("device")}));
  GEMMD_ASSIGN_OR_RETURN(
      client::Buffer buffer,
      session.CreateBuffer(
          {.dtype = ToClient(matrix.dtype()), .shape = matrix.shape(), .label = "gemmctl upload"}));
  client::TransferOptions options;
  options.progress = ProgressLine(call.out, "uploading " + name);
  options.route = RouteOf(call.args.Text("route"));
  GEMMD_ASSIGN_OR_RETURN(client::TransferReport moved,
                         buffer.Upload(client::AsBytes(matrix.bytes()), 0, options));
  absl::Status published = session.Publish(buffer, name);
  if (!published.ok()) return published;
  call.out.Result(
      {{"name", name},
       {"device", session.device()},
       {"dtype", std::string(files::DTypeName(matrix.dtype()))},
       {"shape", matrix.shape()},
       {"size_bytes", buffer.size_bytes()},
       {"transfer", TransferJson(moved)}},
      absl::StrCat("published ", Printable(name), ": ", files::DTypeName(matrix.dtype()), " ",
                   files::ShapeText(matrix.shape()), " on ", Printable(session.device()), "; ",
                   TransferText(moved), "\n"));
  return absl::OkStatus();
}

}  // namespace

const Command kUploadCommand = {
    .name = "upload",
    .summary = "put a matrix on the server under a name",
    .details =
        "The buffer is published: read-only, found by that name from any session of the tenant, "
        "and it outlives the\n"
        "session that this command opens. It stays until 'gemmctl unpublish NAME'.",
    .positionals = kUploadPositionals,
    .flags = kUploadFlags,
    .run = RunUpload};

}  // namespace gemmd::cli
