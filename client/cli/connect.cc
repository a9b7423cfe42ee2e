#include "client/cli/connect.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cpp/errors.h"

namespace gemmd::cli {

absl::StatusOr<client::Client> Connect(const Args& args, CallKind kind) {
  client::ClientOptions options;
  options.connect_timeout = absl::Seconds(3);
  options.default_timeout = kind == CallKind::kLookUp ? absl::Seconds(10) : absl::ZeroDuration();
  if (args.Given("timeout")) {
    options.connect_timeout = args.Duration("timeout");
    options.default_timeout = args.Duration("timeout");
  }
  const std::string target = args.Text("server");
  absl::StatusOr<client::Client> client = client::Client::Connect(target, options);
  if (!client.ok()) return Explained(client.status(), target);
  return client;
}

absl::Status Explained(const absl::Status& status, absl::string_view target) {
  if (status.ok()) return status;
  const std::string reason = client::ReasonOf(status);
  const std::string request_id = client::RequestIdOf(status);
  std::string message(status.message());
  if (!reason.empty()) {
    absl::StrAppend(&message, " (", absl::StatusCodeToString(status.code()), ", reason ", reason,
                    request_id.empty() ? "" : ", request ", request_id, ")");
  }
  ExitCode code = ExitCodeOf(status);
  // With a reason the daemon itself has spoken: it was reached.
  if (!reason.empty() && code == ExitCode::kUnreachable) code = ExitCode::kRefused;
  if (code == ExitCode::kUnreachable) {
    // Connecting names the target itself.
    if (!absl::StrContains(message, target)) {
      message = absl::StrCat("no answer from the server at ", target, ": ", message);
    }
    const bool late = status.code() == absl::StatusCode::kDeadlineExceeded;
    absl::StrAppend(&message, late ? "; --timeout allows more"
                                   : "; start one there, or say with --server where it is");
  }
  return WithExit(code, absl::Status(status.code(), message));
}

std::string TimeText(int64_t seconds, int32_t nanos) {
  if (seconds == 0 && nanos == 0) return "";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(seconds),
                          absl::UTCTimeZone());
}

}  // namespace gemmd::cli
