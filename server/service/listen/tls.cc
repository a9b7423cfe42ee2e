#include "server/service/listen/tls.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// The two files of a pair are replaced one after the other, or both between our reading of one and
// of the other: a pair that does not match is given this long to.
constexpr absl::Duration kRenewal = absl::Milliseconds(500);

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Context = std::unique_ptr<SSL_CTX, Deleter<SSL_CTX_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

absl::Status Wrong(const char* field, const std::string& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", file, ": ", what));
}

absl::StatusOr<std::string> Read(const char* field, const std::string& file) {
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;  // which keeps to itself what reading a directory throws
  text << stream.rdbuf();
  if (stream.is_open() && (text.good() || errno == 0)) return text.str();
  return Wrong(field, file,
               absl::StrCat("cannot read: ", std::strerror(errno), "; let gemmd's user read it"));
}

Bio Over(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// An encrypted key must not make OpenSSL ask at the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

// The first certificate of a file, if all that are in it can be read: of one that is half written
// not even the whole ones are.
absl::StatusOr<Certificate> ParseCertificates(const char* field, const std::string& file,
                                              const std::string& text) {
  const Bio bio = Over(text);
  const auto next = [&] {
    return Certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr));
  };
  Certificate first = next();
  const bool any = first != nullptr;
  while (any && next() != nullptr) continue;
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();  // the queue is the thread's, and gRPC reads it too
  if (any && at_end) return first;
  return Wrong(field, file,
               absl::StrCat(any ? "has a damaged certificate" : "has no PEM certificate",
                            "; give one that begins with -----BEGIN CERTIFICATE-----"));
}

absl::StatusOr<TlsPems> Read(const TlsConfig& tls) {
  // All are read before any is parsed: the shorter the time between, the rarer a mixed pair.
  GEMMD_ASSIGN_OR_RETURN(auto certificate, Read("tls.certificate_file", tls.certificate_file));
  GEMMD_ASSIGN_OR_RETURN(auto key, Read("tls.key_file", tls.key_file));
  TlsPems pems{std::move(certificate), std::move(key)};
  if (tls.client_ca_file.empty()) return pems;
  GEMMD_ASSIGN_OR_RETURN(pems.authorities, Read("tls.client_ca_file", tls.client_ca_file));
  return pems;
}

// Whether the key is the certificate's. Fails for what no handshake could show.
absl::StatusOr<bool> KeyMatches(const TlsConfig& tls, const TlsPems& pems) {
  GEMMD_ASSIGN_OR_RETURN(
      const auto certificate,
      ParseCertificates("tls.certificate_file", tls.certificate_file, pems.certificate));
  const Key key(PEM_read_bio_PrivateKey(Over(pems.key).get(), nullptr, NoPassword, nullptr));
  ERR_clear_error();
  if (key == nullptr) {
    return Wrong("tls.key_file", tls.key_file, "has no PEM key without a password; give one");
  }
  const Context context(SSL_CTX_new(TLS_method()));
  if (SSL_CTX_use_certificate(context.get(), certificate.get()) != 1) {
    const char* why = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    return Wrong("tls.certificate_file", tls.certificate_file,
                 absl::StrCat("OpenSSL refuses it: ", why == nullptr ? "no reason told" : why,
                              "; give a stronger one"));
  }
  const bool match = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return match;
}

// What the files have, if it is right within `patience`.
absl::StatusOr<TlsPems> Load(const TlsConfig& tls, absl::Duration patience) {
  const absl::Time end = absl::Now() + patience;
  for (;;) {
    auto pems = Read(tls);
    if (!pems.ok()) return pems;
    GEMMD_ASSIGN_OR_RETURN(const bool match, KeyMatches(tls, *pems));
    if (!match && absl::Now() < end) {
      absl::SleepFor(kRenewal / 100);
      continue;
    }
    if (!match) {
      return Wrong("tls.key_file", tls.key_file,
                   absl::StrCat("is not the key of ", tls.certificate_file, "; give its own"));
    }
    if (tls.client_ca_file.empty()) return pems;
    GEMMD_RETURN_IF_ERROR(
        ParseCertificates("tls.client_ca_file", tls.client_ca_file, pems->authorities).status());
    return pems;
  }
}

absl::StatusOr<absl::Time> Expiry(const std::string& certificate_file, const std::string& text) {
  GEMMD_ASSIGN_OR_RETURN(auto certificate,
                         ParseCertificates("tls.certificate_file", certificate_file, text));
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1) {
    return Wrong("tls.certificate_file", certificate_file, "has no date of expiry");
  }
  return absl::FromTM(end, absl::UTCTimeZone());
}

// gRPC's own watcher of files hands on whatever it reads, and what is no pair ends every handshake.
// So gRPC's C library is given a function instead, which it asks at each; this has its C++ take it.
class FetchedCredentials final : public grpc::ServerCredentials {
 public:
  FetchedCredentials(grpc_ssl_client_certificate_request_type request,
                     grpc_ssl_server_certificate_config_callback fetch, void* files)
      : credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(request, fetch,
                                                                            files))) {}
  ~FetchedCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

absl::Status CheckTlsFiles(const TlsConfig& tls) { return Load(tls, kRenewal).status(); }

absl::Status CheckAuthorities(const char* field, const std::string& file) {
  GEMMD_ASSIGN_OR_RETURN(const std::string text, Read(field, file));
  return ParseCertificates(field, file, text).status();
}

absl::StatusOr<absl::Time> CertificateExpiry(const std::string& certificate_file) {
  GEMMD_ASSIGN_OR_RETURN(const auto text, Read("tls.certificate_file", certificate_file));
  return Expiry(certificate_file, text);
}

std::string ExpiredText(const std::string& certificate_file, absl::Time expiry) {
  return absl::StrCat(certificate_file, " expired on ",
                      absl::FormatTime(absl::RFC3339_sec, expiry, absl::UTCTimeZone()),
                      ", and clients refuse it; put a new one and its key in place");
}

absl::StatusOr<std::unique_ptr<TlsFiles>> TlsFiles::Start(const ListenerConfig& listener) {
  GEMMD_ASSIGN_OR_RETURN(auto pems, gemmd::server::Load(*listener.tls, kRenewal));
  std::unique_ptr<TlsFiles> files(new TlsFiles(listener));
  GEMMD_RETURN_IF_ERROR(files->Take(std::move(pems)));
  return files;
}

absl::Status TlsFiles::Take(TlsPems pems) {
  GEMMD_ASSIGN_OR_RETURN(expiry_, Expiry(config_.certificate_file, pems.certificate));
  absl::MutexLock lock(&mutex_);
  pems_ = std::move(pems);
  fetched_ = false;
  return absl::OkStatus();
}

std::optional<absl::Status> TlsFiles::Poll() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return std::nullopt;
  next_look_ = now + absl::ToChronoMilliseconds(config_.watch);
  auto pems = gemmd::server::Load(config_, absl::ZeroDuration());
  bool changed = pems.ok();
  if (changed) {
    absl::ReaderMutexLock lock(&mutex_);
    changed = !(*pems == pems_);
  }
  const absl::Status looked = changed ? Take(*std::move(pems)) : pems.status();
  const bool again = std::exchange(looked_, looked) == looked;
  // At one look what is wrong may be half of a renewal.
  if ((!looked.ok() && !again) || std::exchange(told_, looked) == looked) {
    return changed ? std::optional(looked) : std::nullopt;
  }
  return looked;
}

grpc_ssl_certificate_config_reload_status TlsFiles::Fetch(
    void* files, grpc_ssl_server_certificate_config** config) {
  TlsFiles& self = *static_cast<TlsFiles*>(files);
  absl::MutexLock lock(&self.mutex_);
  if (std::exchange(self.fetched_, true)) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const TlsPems& pems = self.pems_;
  const grpc_ssl_pem_key_cert_pair pair = {pems.key.c_str(), pems.certificate.c_str()};
  // gRPC insists on authorities, by which it checks nobody where no certificate is asked for.
  const std::string& authorities = pems.authorities.empty() ? pems.certificate : pems.authorities;
  *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

std::shared_ptr<grpc::ServerCredentials> TlsFiles::Credentials() {
  auto request = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  if (!config_.client_ca_file.empty()) {
    request = token_ ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                     : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  return std::make_shared<FetchedCredentials>(request, Fetch, this);
}

}  // namespace gemmd::server
