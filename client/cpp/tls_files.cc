#include "client/cpp/tls_files.h"

#include <errno.h>
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

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

absl::StatusOr<Bio> Open(const char* field, const std::string& file) {
  errno = 0;
  Bio bio(BIO_new_file(file.c_str(), "r"));
  ERR_clear_error();  // the queue is the thread's, and gRPC reads it too
  if (bio != nullptr) return bio;
  const std::string text = absl::StrCat("cannot read ", field, "=", file, ": ", strerror(errno));
  return errno == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
}

// The first of the file, which of a chain is its owner's own.
absl::StatusOr<Certificate> ReadCertificate(const char* field, const std::string& file) {
  const absl::StatusOr<Bio> bio = Open(field, file);
  if (!bio.ok()) return bio.status();
  Certificate certificate(PEM_read_bio_X509(bio->get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate != nullptr) return certificate;
  return absl::InvalidArgumentError(
      absl::StrCat(field, "=", file, " holds no PEM certificate (BEGIN CERTIFICATE)"));
}

absl::StatusOr<Key> ReadKey(const std::string& file) {
  const absl::StatusOr<Bio> bio = Open("key_file", file);
  if (!bio.ok()) return bio.status();
  // No passphrase is asked for: a client has nobody to ask.
  const auto no_passphrase = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_bio_PrivateKey(bio->get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(
      absl::StrCat("key_file=", file, " holds no PEM private key without a passphrase"));
}

absl::StatusOr<bool> KeyMatches(const TlsOptions& tls) {
  const absl::StatusOr<Certificate> certificate = ReadCertificate("cert_file", tls.cert_file);
  if (!certificate.ok()) return certificate.status();
  const absl::StatusOr<Key> key = ReadKey(tls.key_file);
  if (!key.ok()) return key.status();
  const bool match = X509_check_private_key(certificate->get(), key->get()) == 1;
  ERR_clear_error();
  return match;
}

}  // namespace

absl::Status CheckTlsFiles(const TlsOptions& tls) {
  if (!tls.ca_file.empty()) {
    if (auto ca = ReadCertificate("ca_file", tls.ca_file); !ca.ok()) return ca.status();
  }
  if (tls.cert_file.empty() != tls.key_file.empty()) {
    return absl::InvalidArgumentError(
        "cert_file and key_file belong together: give both, or neither");
  }
  if (tls.cert_file.empty()) return absl::OkStatus();
  const absl::Time end = absl::Now() + kRenewal;
  for (;;) {
    const absl::StatusOr<bool> match = KeyMatches(tls);
    if (!match.ok()) return match.status();
    if (*match) return absl::OkStatus();
    if (absl::Now() >= end) break;
    absl::SleepFor(kRenewal / 20);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("key_file=", tls.key_file, " is not the key of ", "cert_file=", tls.cert_file));
}

absl::StatusOr<absl::Time> EndOfCertificate(const std::string& file) {
  const absl::StatusOr<Certificate> certificate = ReadCertificate("cert_file", file);
  if (!certificate.ok()) return certificate.status();
  tm end;
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate->get()), &end) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(file, " has no readable end"));
  }
  return absl::FromTM(end, absl::UTCTimeZone());
}

}  // namespace gemmd::client
