#include "client/cpp/security.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/internal/connect/target.h"
#include "client/cpp/internal/connect/tls_files.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

constexpr unsigned kWatchSeconds = 1;

std::shared_ptr<grpc::ChannelCredentials> TlsCredentials(const TlsOptions& tls) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  if (!tls.ca_file.empty() || !tls.cert_file.empty()) {
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
            tls.key_file, tls.cert_file, tls.ca_file, kWatchSeconds));
  }
  if (!tls.ca_file.empty()) options.watch_root_certs();
  if (!tls.cert_file.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

absl::StatusOr<Security> MakeSecurity(absl::string_view target, const ClientOptions& options) {
  const Reach reach = ReachOf(target);
  Security security;
  if (options.tls) {
    if (reach == Reach::kUnixSocket) {
      return absl::InvalidArgumentError(
          absl::StrCat("TLS is for TCP, and ", target,
                       " is a Unix socket: leave tls out, the kernel guards it"));
    }
    GEMMD_RETURN_IF_ERROR(CheckTlsFiles(*options.tls));
    security.credentials = TlsCredentials(*options.tls);
  } else {
    security.credentials = grpc::InsecureChannelCredentials();
  }
  if (options.token_file.empty()) return security;
  if (!options.tls && reach == Reach::kNetwork && !options.send_token_in_plaintext) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the token of ", options.token_file, " would travel to ", target,
        " in plaintext, for anybody on the way to take; use tls, a Unix socket or loopback, or "
        "allow it by send_token_in_plaintext"));
  }
  absl::StatusOr<std::unique_ptr<TokenFile>> token = TokenFile::Open(
      options.token_file, [told = options.on_background_error](const absl::Status& status) {
        if (told) told("token file", status);
      });
  if (!token.ok()) return token.status();
  security.token = *std::move(token);
  return security;
}

}  // namespace gemmd::client
