#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/document.h"
#include "client/cli/published.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/session_service.pb.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Positional kBuffersPositionals[] = {
    {.name = "NAME", .help = "one published buffer", .required = false, .names = Names::kPublished},
};
constexpr Flag kBuffersFlags[] = {
    TextFlag("session", "ID", "the buffers of this session, by its id in hex"),
};

// One session's buffers in full.
void PrintBuffers(const std::vector<v1::Buffer>& buffers, Output& out) {
  Json document = {{"buffers", Json::array()}};
  std::vector<std::vector<std::string>> rows = {
      {"buffer", "name", "device", "memory", "dtype", "shape", "bytes", "created", "label"}};
  for (const v1::Buffer& buffer : buffers) {
    Json one = DocumentOf(buffer);
    one["id"] = one["buffer_id"];  // as gemmctl has called it from the beginning
    rows.push_back({one["id"].get<std::string>(), buffer.published_name(), buffer.device(),
                    one["memory_kind"].get<std::string>(), one["dtype"].get<std::string>(),
                    ShapeText(buffer), HumanBytes(static_cast<double>(buffer.size_bytes())),
                    one["create_time"].get<std::string>(), buffer.label()});
    document["buffers"].push_back(std::move(one));
  }
  out.Result(document, Table(rows));
}

// Handles belong to their sessions and are not shown to others: only how many, and how large. What
// is published follows.
void PrintTotals(const std::vector<v1::SessionInfo>& sessions,
                 const std::vector<v1::Buffer>& published, Output& out) {
  Json document = {{"sessions", Json::array()}, {"published", Json::array()}};
  std::vector<std::vector<std::string>> rows = {{"session", "label", "device", "buffers", "bytes"}};
  for (const v1::SessionInfo& session : sessions) {
    document["sessions"].push_back(DocumentOf(session));
    rows.push_back({session.name(), session.label(), session.device(),
                    absl::StrCat(session.buffers()),
                    HumanBytes(static_cast<double>(session.buffer_bytes()))});
  }
  std::vector<std::vector<std::string>> names = {{"published", "device", "dtype", "bytes"}};
  for (const v1::Buffer& buffer : published) {
    const std::string dtype(client::Name(static_cast<client::DType>(buffer.dtype())));
    document["published"].push_back({{"name", buffer.published_name()},
                                     {"device", buffer.device()},
                                     {"dtype", dtype},
                                     {"size_bytes", buffer.size_bytes()}});
    names.push_back({buffer.published_name(), buffer.device(), dtype,
                     HumanBytes(static_cast<double>(buffer.size_bytes()))});
  }
  out.Result(document, absl::StrCat(Table(rows), "\n", Table(names)));
}

absl::Status RunBuffers(Invocation& call) {
  const std::string name = call.args.Positional(0);
  if (!name.empty() && call.args.Given("session")) {
    return WithExit(ExitCode::kUsage,
                    absl::InvalidArgumentError("give either a NAME or --session, not both"));
  }
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  if (call.args.Given("session")) {
    absl::StatusOr<client::Handle> id = client::Handle::FromHex(call.args.Text("session"));
    if (!id.ok()) return WithExit(ExitCode::kUsage, id.status());
    GEMMD_ASSIGN_OR_RETURN(client::Session session, client.AttachSession(*id));
    GEMMD_ASSIGN_OR_RETURN(std::vector<v1::Buffer> buffers, session.ListBuffers());
    PrintBuffers(buffers, call.out);
    return absl::OkStatus();
  }
  if (!name.empty()) {
    GEMMD_ASSIGN_OR_RETURN(client::Session session,
                           client.OpenSession({.label = "gemmctl buffers"}));
    GEMMD_ASSIGN_OR_RETURN(client::Buffer found, session.Find(name));
    GEMMD_ASSIGN_OR_RETURN(v1::Buffer buffer, session.GetBuffer(found.id()));
    PrintBuffers({buffer}, call.out);
    return absl::OkStatus();
  }
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::SessionInfo> sessions, client.ListSessions());
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::Buffer> published, client.ListPublished());
  PrintTotals(sessions, published, call.out);
  return absl::OkStatus();
}

}  // namespace

const Command kBuffersCommand = {
    .name = "buffers",
    .summary = "show buffers: all in sum and by published name, of one session, or one by name",
    .details =
        "A buffer's handle is known to its session only, so that without --session there are sums "
        "alone.",
    .positionals = kBuffersPositionals,
    .flags = kBuffersFlags,
    .run = RunBuffers};

}  // namespace gemmd::cli
