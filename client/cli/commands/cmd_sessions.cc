#include "absl/strings/str_cat.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/document.h"
#include "gemmd/v1/session_service.pb.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

absl::Status RunSessions(Invocation& call) {
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::SessionInfo> sessions, client.ListSessions());
  Json document = {{"sessions", Json::array()}};
  std::vector<std::vector<std::string>> rows = {{"session", "label", "device", "created", "expires",
                                                 "buffers", "bytes", "plans", "queued",
                                                 "device time", "peer"}};
  for (const v1::SessionInfo& session : sessions) {
    document["sessions"].push_back(DocumentOf(session));
    rows.push_back(
        {session.name(), session.label(), session.device(), TimeText(session.create_time()),
         session.held() ? "held" : TimeText(session.expire_time()), absl::StrCat(session.buffers()),
         HumanBytes(static_cast<double>(session.buffer_bytes())), absl::StrCat(session.plans()),
         absl::StrCat(session.queued_programs()), HumanSeconds(session.device_seconds()),
         session.peer()});
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
