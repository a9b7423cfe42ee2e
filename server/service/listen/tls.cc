#include "server/service/listen/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

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
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

absl::Status Wrong(const char* field, const std::string& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("tls.", field, ": ", file, ": ", what));
}

absl::StatusOr<std::string> Read(const char* field, const std::string& file) {
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;  // which keeps to itself what reading a directory throws
  text << stream.rdbuf();
  if (stream.is_open() && (text.good() || errno == 0)) return text.str();
  return Wrong(field, file, absl::StrCat("cannot read: ", std::strerror(errno)));
}

Bio Over(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// An encrypted key must not make OpenSSL ask at the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

absl::StatusOr<Certificate> ParseCertificate(const char* field, const std::string& file,
                                             const std::string& text) {
  Certificate certificate(PEM_read_bio_X509(Over(text).get(), nullptr, NoPassword, nullptr));
  if (certificate == nullptr) {
    return Wrong(field, file,
                 "has no PEM certificate; give one that begins with -----BEGIN "
                 "CERTIFICATE-----");
  }
  return certificate;
}

absl::StatusOr<Certificate> ReadCertificate(const char* field, const std::string& file) {
  const auto text = Read(field, file);
  if (!text.ok()) return text.status();
  return ParseCertificate(field, file, *text);
}

absl::StatusOr<bool> KeyMatches(const TlsConfig& tls) {
  // Both are read before either is parsed: the shorter the time between, the rarer a mixed pair.
  const auto certificate_text = Read("certificate_file", tls.certificate_file);
  const auto key_text = Read("key_file", tls.key_file);
  if (!certificate_text.ok()) return certificate_text.status();
  if (!key_text.ok()) return key_text.status();
  const auto certificate =
      ParseCertificate("certificate_file", tls.certificate_file, *certificate_text);
  if (!certificate.ok()) return certificate.status();
  const Key key(PEM_read_bio_PrivateKey(Over(*key_text).get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return Wrong("key_file", tls.key_file, "has no PEM key without a password; give one");
  }
  return X509_check_private_key(certificate->get(), key.get()) == 1;
}

}  // namespace

absl::Status CheckTlsFiles(const TlsConfig& tls) {
  const absl::Time end = absl::Now() + kRenewal;
  for (;;) {
    const absl::StatusOr<bool> match = KeyMatches(tls);
    if (!match.ok()) return match.status();
    if (*match) break;
    if (absl::Now() >= end) {
      return Wrong("key_file", tls.key_file,
                   absl::StrCat("is not the key of ", tls.certificate_file, "; give its own"));
    }
    absl::SleepFor(kRenewal / 100);
  }
  if (tls.client_ca_file.empty()) return absl::OkStatus();
  return ReadCertificate("client_ca_file", tls.client_ca_file).status();
}

absl::StatusOr<absl::Time> CertificateExpiry(const std::string& certificate_file) {
  auto certificate = ReadCertificate("certificate_file", certificate_file);
  if (!certificate.ok()) return certificate.status();
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate->get()), &end) != 1) {
    return Wrong("certificate_file", certificate_file, "has no date of expiry");
  }
  return absl::FromTM(end, absl::UTCTimeZone());
}

std::string ExpiredText(const std::string& certificate_file, absl::Time expiry) {
  return absl::StrCat(certificate_file, " expired on ",
                      absl::FormatTime(absl::RFC3339_sec, expiry, absl::UTCTimeZone()),
                      ", and clients refuse it; put a new one and its key in place");
}

std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(const ListenerConfig& config) {
  namespace tls = grpc::experimental;
  const TlsConfig& files = *config.tls;
  const auto seconds =
      static_cast<unsigned>(std::max<int64_t>(1, absl::ToInt64Seconds(files.watch)));
  const auto provider = std::make_shared<tls::FileWatcherCertificateProvider>(
      files.key_file, files.certificate_file, files.client_ca_file, seconds);
  tls::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  if (files.client_ca_file.empty()) {
    options.set_cert_request_type(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  } else {
    options.watch_root_certs();
    options.set_cert_request_type(config.credentials.token
                                      ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                      : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(options);
}

}  // namespace gemmd::server
