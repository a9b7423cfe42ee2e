// TLS of a listener: gRPC's credentials that follow their files, and what a certificate says.

#ifndef GEMMD_SERVER_SERVICE_LISTEN_TLS_H_
#define GEMMD_SERVER_SERVICE_LISTEN_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/config.h"

namespace gemmd::server {

// INVALID_ARGUMENT names the file that is missing, is no PEM, or whose key is not the
// certificate's. gRPC itself would listen all the same, and fail every handshake.
absl::Status CheckTlsFiles(const TlsConfig& tls);

// When the first certificate of a PEM file ends. INVALID_ARGUMENT when there is none in it.
absl::StatusOr<absl::Time> CertificateExpiry(const std::string& certificate_file);

// "FILE expired on .., and clients refuse it; ..".
std::string ExpiredText(const std::string& certificate_file, absl::Time expiry);

// Credentials that read the files again every tls.watch; what is not right then is not taken.
std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(const ListenerConfig& config);

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_LISTEN_TLS_H_
