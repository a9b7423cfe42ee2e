#include "client/cpp/internal/connect/tls_files.h"

#include <errno.h>
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

// The two files of a pair are replaced one after the other, or both between our reading of one and
// of the other: a pair that does not match is given this long to.
constexpr absl::Duration kRenewal = absl::Milliseconds(500);

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

absl::StatusOr<std::string> Read(const char* field, const std::string& file) {
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;  // which keeps to itself what reading a directory throws
  text << stream.rdbuf();
  if (stream.is_open() && (text.good() || errno == 0)) return text.str();
  const std::string why = absl::StrCat("cannot read ", field, "=", file, ": ", strerror(errno));
  return errno == ENOENT ? absl::NotFoundError(why) : absl::PermissionDeniedError(why);
}

Bio Over(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The first of the file, which of a chain is its owner's own.
absl::StatusOr<Certificate> ParseCertificate(const char* field, const std::string& file,
                                             const std::string& text) {
  Certificate certificate(PEM_read_bio_X509(Over(text).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();  // the queue is the thread's, and gRPC reads it too
  if (certificate != nullptr) return certificate;
  return absl::InvalidArgumentError(
      absl::StrCat(field, "=", file, " holds no PEM certificate (BEGIN CERTIFICATE)"));
}

absl::StatusOr<Certificate> ReadCertificate(const char* field, const std::string& file) {
  GEMMD_ASSIGN_OR_RETURN(const std::string text, Read(field, file));
  return ParseCertificate(field, file, text);
}

absl::StatusOr<Key> ParseKey(const std::string& file, const std::string& text) {
  // No passphrase is asked for: a client has nobody to ask.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_bio_PrivateKey(Over(text).get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(
      absl::StrCat("key_file=", file, " holds no PEM private key without a passphrase"));
}

absl::StatusOr<bool> KeyMatches(const TlsOptions& tls) {
  // Both are read before either is parsed: the shorter the time between, the rarer a mixed pair.
  const absl::StatusOr<std::string> cert_text = Read("cert_file", tls.cert_file);
  const absl::StatusOr<std::string> key_text = Read("key_file", tls.key_file);
  if (!cert_text.ok()) return cert_text.status();
  if (!key_text.ok()) return key_text.status();
  GEMMD_ASSIGN_OR_RETURN(const Certificate certificate,
                         ParseCertificate("cert_file", tls.cert_file, *cert_text));
  GEMMD_ASSIGN_OR_RETURN(const Key key, ParseKey(tls.key_file, *key_text));
  const bool match = X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  return match;
}

}  // namespace

absl::Status CheckTlsFiles(const TlsOptions& tls) {
  if (!tls.ca_file.empty()) GEMMD_RETURN_IF_ERROR(ReadCertificate("ca_file", tls.ca_file).status());
  if (tls.cert_file.empty() != tls.key_file.empty()) {
    return absl::InvalidArgumentError(
        "cert_file and key_file belong together: give both, or neither");
  }
  if (tls.cert_file.empty()) return absl::OkStatus();
  const absl::Time end = absl::Now() + kRenewal;
  for (;;) {
    GEMMD_ASSIGN_OR_RETURN(const bool match, KeyMatches(tls));
    if (match) return absl::OkStatus();
    if (absl::Now() >= end) break;
    absl::SleepFor(kRenewal / 100);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("key_file=", tls.key_file, " is not the key of ", "cert_file=", tls.cert_file));
}

absl::StatusOr<absl::Time> EndOfCertificate(const std::string& file) {
  GEMMD_ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate("cert_file", file));
  tm end;
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(file, " has no readable end"));
  }
  return absl::FromTM(end, absl::UTCTimeZone());
}

}  // namespace gemmd::client
