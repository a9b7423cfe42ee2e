#include "client/cli/connect.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cpp/errors.h"

namespace gemmd::cli {

namespace {

constexpr absl::string_view kFiles[] = {"tls-ca", "tls-cert", "tls-key", "token-file"};

// The client library names its options; whoever reads this typed flags.
std::string InFlags(absl::string_view message) {
  return absl::StrReplaceAll(message, {{"client_ca_file", "client_ca_file"},  // the server's own
                                       {"ca_file", "--tls-ca"},
                                       {"cert_file", "--tls-cert"},
                                       {"key_file", "--tls-key"},
                                       {"server_name", "--tls-server-name"},
                                       {"token_file", "--token-file"},
                                       {"send_token_in_plaintext", "--send-token-in-plaintext"},
                                       {"set tls", "give --tls-ca"},
                                       {"leave tls out", "leave the --tls flags out"},
                                       {"use tls", "use TLS (--tls-ca)"}});
}

// What the client library itself refuses, before anything is sent, is wrong on the command line or
// in a file that it names.
absl::Status ConnectFailure(const absl::Status& status, absl::string_view target) {
  const absl::Status told(status.code(), InFlags(status.message()));
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
      return WithExit(ExitCode::kUsage, told);
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
      return WithExit(ExitCode::kBadFile, told);
    default:
      // Something listens there, and the text has the remedy.
      if (absl::StrContains(told.message(), "TLS") ||
          absl::StrContains(told.message(), "certificate")) {
        return WithExit(ExitCode::kUnreachable, told);
      }
      return Explained(told, target);
  }
}

}  // namespace

client::ClientOptions ClientOptionsOf(const Args& args, CallKind kind) {
  client::ClientOptions options;
  options.connect_timeout = absl::Seconds(3);
  options.default_timeout = kind == CallKind::kLookUp ? absl::Seconds(10) : absl::ZeroDuration();
  if (args.Given("timeout")) {
    options.connect_timeout = args.Duration("timeout");
    options.default_timeout = args.Duration("timeout");
  }
  if (args.On("tls") || args.Given("tls-ca") || args.Given("tls-cert") || args.Given("tls-key") ||
      args.Given("tls-server-name")) {
    options.tls = client::TlsOptions{.ca_file = args.Text("tls-ca"),
                                     .cert_file = args.Text("tls-cert"),
                                     .key_file = args.Text("tls-key"),
                                     .server_name = args.Text("tls-server-name")};
  }
  options.token_file = args.Text("token-file");
  options.send_token_in_plaintext = args.On("send-token-in-plaintext");
  options.on_background_error = [out = Output(args.On("json"), args.On("quiet"))](
                                    absl::string_view what, const absl::Status& status) {
    if (what == "token file") out.Note(InFlags(status.message()));
  };
  return options;
}

absl::StatusOr<client::Client> Connect(const Args& args, CallKind kind) {
  const client::ClientOptions options = ClientOptionsOf(args, kind);
  const std::string servers = args.Text("server");
  absl::Status status;
  for (absl::string_view target : absl::StrSplit(servers, ',')) {
    absl::StatusOr<client::Client> client = client::Client::Connect(target, options);
    if (client.ok()) return client;
    status = ConnectFailure(client.status(), target);
    if (status.code() != absl::StatusCode::kUnavailable) break;  // the same for all of them
  }
  return status;
}

std::vector<std::string> SecurityFlags(const Args& args) {
  std::vector<std::string> flags;
  for (absl::string_view name : kFiles) {
    if (args.Given(name)) flags.push_back(absl::StrCat("--", name, "=", args.Text(name)));
  }
  if (args.Given("tls-server-name")) {
    flags.push_back(absl::StrCat("--tls-server-name=", args.Text("tls-server-name")));
  }
  for (absl::string_view name : {"tls", "send-token-in-plaintext"}) {
    if (args.On(name)) flags.push_back(absl::StrCat("--", name));
  }
  return flags;
}

absl::Status Explained(const absl::Status& status, absl::string_view target) {
  if (status.ok() || HasExit(status)) return status;
  const std::string reason = client::ReasonOf(status);
  const std::string request_id = client::RequestIdOf(status);
  std::string message(status.message());
  if (!reason.empty()) {
    absl::StrAppend(&message, " (", absl::StatusCodeToString(status.code()), ", reason ", reason,
                    request_id.empty() ? "" : ", request ", request_id, ")");
  }
  if (reason == "NO_CREDENTIALS") {
    absl::StrAppend(&message, "; --token-file or --tls-cert says who you are");
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

}  // namespace gemmd::cli
