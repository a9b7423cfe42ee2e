#include "tests/e2e/certificates.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

namespace gemmd::e2e {
namespace {

void Must(bool done, const char* what) {
  if (done) return;
  std::fprintf(stderr, "certificates: %s failed\n", what);
  std::abort();
}

// OpenSSL shall not clean up as the process exits: a thread of gRPC's may then be in the midst of a
// handshake that nobody waits for, and what it holds would count as leaked. Before any other use.
const bool kStaysToTheEnd = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;

template <typename Write>
std::string Pem(Write write) {
  BIO* bio = BIO_new(BIO_s_mem());
  Must(write(bio) == 1, "PEM_write_bio");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, size);
  BIO_free(bio);
  return text;
}

void Extend(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  Must(extension != nullptr, value.c_str());
  Must(X509_add_ext(certificate, extension, -1) == 1, "X509_add_ext");
  X509_EXTENSION_free(extension);
}

std::string AlternativeNames(const Subject& subject) {
  std::vector<std::string> names;
  for (const std::string& name : subject.dns) names.push_back("DNS:" + name);
  for (const std::string& address : subject.ips) names.push_back("IP:" + address);
  for (const std::string& uri : subject.uris) names.push_back("URI:" + uri);
  return absl::StrJoin(names, ",");
}

}  // namespace

Authority::Key Authority::NewKey() {
  Key key(EVP_EC_gen("P-256"));
  Must(key != nullptr, "EVP_EC_gen");
  return key;
}

Authority::Certificate Authority::Make(const Subject& subject, EVP_PKEY* key, X509* issuer,
                                       EVP_PKEY* signer) {
  Certificate made(X509_new());
  X509* const certificate = made.get();
  X509_set_version(certificate, 2);
  BIGNUM* serial = BN_new();
  Must(BN_rand(serial, 120, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1, "BN_rand");
  BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(certificate));
  BN_free(serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), absl::ToInt64Seconds(subject.begin));
  X509_gmtime_adj(X509_getm_notAfter(certificate), absl::ToInt64Seconds(subject.end));
  X509_set_pubkey(certificate, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(subject.common_name.c_str()),
                             -1, -1, 0);
  const bool is_authority = issuer == nullptr;
  if (is_authority) issuer = certificate;
  X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
  Extend(certificate, issuer, NID_basic_constraints,
         is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
  Extend(certificate, issuer, NID_subject_key_identifier, "hash");
  Extend(certificate, issuer, NID_authority_key_identifier, "keyid:always");
  if (is_authority) {
    Extend(certificate, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    Extend(certificate, issuer, NID_key_usage, "critical,digitalSignature");
    Extend(certificate, issuer, NID_ext_key_usage, "serverAuth,clientAuth");
  }
  if (const std::string names = AlternativeNames(subject); !names.empty()) {
    Extend(certificate, issuer, NID_subject_alt_name, names);
  }
  Must(X509_sign(certificate, signer, EVP_sha256()) > 0, "X509_sign");
  return made;
}

Authority::Authority(const std::string& name)
    : key_(NewKey()),
      certificate_(Make({.common_name = name}, key_.get(), nullptr, key_.get())),
      pem_(Pem([this](BIO* bio) { return PEM_write_bio_X509(bio, certificate_.get()); })) {}

Identity Authority::Issue(const Subject& subject) {
  const Key key = NewKey();
  const Certificate certificate = Make(subject, key.get(), certificate_.get(), key_.get());
  return {.certificate = Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); }),
          .key = Pem([&](BIO* bio) {
            return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

std::string SerialOf(const std::string& certificate) {
  BIO* bio = BIO_new_mem_buf(certificate.data(), static_cast<int>(certificate.size()));
  X509* read = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  Must(read != nullptr, "PEM_read_bio_X509");
  BIGNUM* number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(read), nullptr);
  char* hex = BN_bn2hex(number);
  std::string serial(hex);
  OPENSSL_free(hex);
  BN_free(number);
  X509_free(read);
  BIO_free(bio);
  return serial;
}

void SecretFolder::Put(const std::map<std::string, std::string>& files) {
  const std::string next = absl::StrCat(path_, ".", ++version_);
  Must(mkdir(next.c_str(), 0755) == 0, next.c_str());
  for (const auto& [name, text] : files) {
    const std::string file = absl::StrCat(next, "/", name);
    std::ofstream out(file);
    out << text;
    out.close();
    Must(out.good() && chmod(file.c_str(), 0600) == 0, file.c_str());
  }
  const std::string link = path_ + ".link";
  Must(symlink(next.c_str(), link.c_str()) == 0, link.c_str());
  Must(rename(link.c_str(), path_.c_str()) == 0, path_.c_str());
}

Renewals::Renewals(SecretFolder& folder, const Identity& one, const Identity& other)
    : thread_([this, &folder, one, other] {
        for (int i = 0; !stop_; ++i) {
          const Identity& next = i % 2 == 0 ? other : one;
          folder.Put({{"tls.crt", next.certificate}, {"tls.key", next.key}});
          absl::SleepFor(absl::Milliseconds(1));
        }
      }) {}

Renewals::~Renewals() {
  stop_ = true;
  thread_.join();
}

}  // namespace gemmd::e2e
