#include "client/cpp/internal/connect/connecting.h"

#include <grpcpp/client_context.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/health.h"
#include "client/cpp/internal/calls/raw_call.h"
#include "client/cpp/internal/connect/tls_files.h"

namespace gemmd::client {
namespace {

// gRPC 1.51's and OpenSSL's words.
constexpr absl::string_view kHandshake = "SSL_ERROR_SSL";
constexpr absl::string_view kName = "erification Check failed";
constexpr absl::string_view kNotTls = "wrong version number";
constexpr absl::string_view kNotTrusted = "certificate verify failed";
constexpr absl::string_view kClosed = "Socket closed";

// gRPC tells why a connection failed only in the error of a call that needed one. "" when the call
// was answered after all, or nothing is known within a second.
std::string WhyNoConnection(ClientCore& core) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(1)));
  const grpc::ByteBuffer request = ToByteBuffer(EncodeHealthRequest(""));
  grpc::ByteBuffer response;
  const grpc::Status status = RawUnary<grpc::ByteBuffer, grpc::ByteBuffer>(
      *core.First().channel(), kHealthMethod, context, request, response);
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ? status.error_message() : "";
}

std::string NotTaken(const TlsOptions& tls) {
  if (tls.cert_file.empty()) {
    return "the server closed the connection after the TLS handshake: it asks for a client "
           "certificate (cert_file and key_file)";
  }
  const absl::StatusOr<absl::Time> end = EndOfCertificate(tls.cert_file);
  if (end.ok() && *end < absl::Now()) {
    return absl::StrCat(
        "the server closed the connection after the TLS handshake: cert_file=", tls.cert_file,
        " is valid no longer, since ",
        absl::FormatTime(absl::RFC3339_sec, *end, absl::UTCTimeZone()), "; renew it");
  }
  return absl::StrCat(
      "the server closed the connection after the TLS handshake: it does not take "
      "cert_file=",
      tls.cert_file, ", which one of its tls.client_ca_file must have signed");
}

}  // namespace

absl::Status AwaitConnection(ClientCore& core) {
  const absl::Time deadline = absl::Now() + core.options().connect_timeout;
  grpc::Channel& channel = *core.First().channel();
  std::string text;
  bool waited = true;
  for (;;) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return absl::OkStatus();
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      if (std::string why = WhyNoConnection(core); !why.empty()) text = why;
      // What the two sides are does not change by waiting.
      waited = !absl::StrContains(text, kHandshake) && !absl::StrContains(text, kName);
      if (!waited) break;
    }
    if (!channel.WaitForStateChange(state, absl::ToChronoTime(deadline))) break;
  }
  // A failure may last shorter than it takes to look.
  if (text.empty()) text = WhyNoConnection(core);
  const std::string meaning = ExplainNoConnection(core.options(), core.target(), text);
  return absl::UnavailableError(
      absl::StrCat("no gemmd answers at ", core.target(), waited ? " within " : "",
                   waited ? absl::FormatDuration(core.options().connect_timeout) : "",
                   meaning.empty() ? "" : ": ", meaning, text.empty() ? "" : " (", text,
                   text.empty() ? "" : ")"));
}

std::string ExplainNoConnection(const ClientOptions& options, absl::string_view target,
                                absl::string_view grpc_text) {
  if (!options.tls) {
    if (!absl::StrContains(grpc_text, kClosed)) return "";
    return "the server closed the connection at the first word: its listener may have TLS; set tls";
  }
  const TlsOptions& tls = *options.tls;
  if (absl::StrContains(grpc_text, kNotTls)) {
    return "what listens there speaks no TLS; leave tls out, or use the listener that has it";
  }
  if (absl::StrContains(grpc_text, kNotTrusted)) {
    return absl::StrCat("the server's certificate is not signed by ",
                        tls.ca_file.empty() ? "any of this system's authorities"
                                            : absl::StrCat("ca_file=", tls.ca_file),
                        ", or its time is over; ca_file must name the authority that signed it");
  }
  if (absl::StrContains(grpc_text, kName)) {
    return absl::StrCat("the server's certificate does not have the name '",
                        tls.server_name.empty() ? target : tls.server_name,
                        "'; connect by a name that it has, or say it by server_name");
  }
  return absl::StrContains(grpc_text, kClosed) ? NotTaken(tls) : "";
}

}  // namespace gemmd::client
