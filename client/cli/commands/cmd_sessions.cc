#include "absl/strings/str_cat.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "gemmd/v1/session_service.pb.h"

namespace gemmd::cli {
namespace {

absl::Status RunSessions(Invocation& call) {
  absl::StatusOr<client::Client> client = Connect(call.args, CallKind::kLookUp);
  if (!client.ok()) return client.status();
  absl::StatusOr<std::vector<v1::SessionInfo>> sessions = client->ListSessions();
  if (!sessions.ok()) return Explained(sessions.status(), call.args.Text("server"));
  Json document = {{"sessions", Json::array()}};
  std::vector<std::vector<std::string>> rows = {{"session", "label", "device", "created", "expires",
                                                 "buffers", "bytes", "plans", "queued",
                                                 "device time", "peer"}};
  for (const v1::SessionInfo& session : *sessions) {
    const std::string created =
        TimeText(session.create_time().seconds(), session.create_time().nanos());
    const std::string expires =
        TimeText(session.expire_time().seconds(), session.expire_time().nanos());
    document["sessions"].push_back({{"name", session.name()},
                                    {"label", session.label()},
                                    {"tenant", session.tenant()},
                                    {"device", session.device()},
                                    {"create_time", created},
                                    {"expire_time", expires},
                                    {"held", session.held()},
                                    {"buffers", session.buffers()},
                                    {"buffer_bytes", session.buffer_bytes()},
                                    {"plans", session.plans()},
                                    {"queued_programs", session.queued_programs()},
                                    {"device_seconds", session.device_seconds()},
                                    {"peer", session.peer()}});
    rows.push_back({session.name(), session.label(), session.device(), created,
                    session.held() ? "held" : expires, absl::StrCat(session.buffers()),
                    HumanBytes(static_cast<double>(session.buffer_bytes())),
                    absl::StrCat(session.plans()), absl::StrCat(session.queued_programs()),
                    HumanSeconds(session.device_seconds()), session.peer()});
  }
  call.out.Result(document, Table(rows));
  return absl::OkStatus();
}

}  // namespace

const Command kSessionsCommand = {
    .name = "sessions",
    .summary = "list the tenant's sessions: who holds what, and until when",
    .details =
        "\"held\" sessions live as long as their client's stream, the others until they expire. "
        "gemmctl's own\n"
        "commands open one for the time that they run.",
    .run = RunSessions};

}  // namespace gemmd::cli
