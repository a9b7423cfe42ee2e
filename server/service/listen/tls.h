// TLS of a listener: its files, which connections are shown only if they are right, and what a
// certificate says.

#pragma once

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/config.h"

namespace gemmd::server {

// INVALID_ARGUMENT names the file that is missing, is no PEM, or whose key is not the
// certificate's.
absl::Status CheckTlsFiles(const TlsConfig& tls);

// The same of a file of authorities, which the config's `field` names.
absl::Status CheckAuthorities(const char* field, const std::string& file);

// When the first certificate of a PEM file ends. INVALID_ARGUMENT when there is none in it.
absl::StatusOr<absl::Time> CertificateExpiry(const std::string& certificate_file);

// "FILE expired on .., and clients refuse it; ..".
std::string ExpiredText(const std::string& certificate_file, absl::Time expiry);

// PEM, of the three files.
struct TlsPems {
  std::string certificate;  // with its intermediates
  std::string key;
  std::string authorities = {};  // empty: no client certificate is asked for
  friend bool operator==(const TlsPems&, const TlsPems&) = default;
};

// The files of a listener. They are read again every tls.watch: connections are shown the last ones
// that were right. Of one thread, but for what gRPC asks it.
class TlsFiles {
 public:
  // Errors as CheckTlsFiles's.
  static absl::StatusOr<std::unique_ptr<TlsFiles>> Start(const ListenerConfig& listener);

  // Of a server that is gone before this.
  std::shared_ptr<grpc::ServerCredentials> Credentials();
  // Looks at the files when it is time to. OK: new ones are shown from now on. An error, told once:
  // what is there now is not right.
  std::optional<absl::Status> Poll();
  // Of the certificate that is shown.
  absl::Time expiry() const { return expiry_; }
  const std::string& certificate_file() const { return config_.certificate_file; }

 private:
  explicit TlsFiles(const ListenerConfig& listener)
      : config_(*listener.tls), token_(listener.credentials.token) {}
  absl::Status Take(TlsPems pems);
  // gRPC asks it at every handshake.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* files, grpc_ssl_server_certificate_config** config);

  const TlsConfig config_;
  const bool token_;
  absl::Time expiry_;
  std::chrono::steady_clock::time_point next_look_;
  absl::Status looked_;
  absl::Status told_;
  absl::Mutex mutex_;
  TlsPems pems_ ABSL_GUARDED_BY(mutex_);
  bool fetched_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gemmd::server
