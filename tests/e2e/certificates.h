// Certificates made by the test itself: authorities, and what they sign.
//
//   Authority ca("servers");
//   const Identity server = ca.Issue({.common_name = "gemmd", .ips = {"127.0.0.1"}});
//   SecretFolder folder(dir.File("tls"));
//   folder.Put({{"tls.crt", server.certificate}, {"tls.key", server.key}});

#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace gemmd::e2e {

// PEM.
struct Identity {
  std::string certificate;
  std::string key;
};

struct Subject {
  std::string common_name;
  std::vector<std::string> dns = {};
  std::vector<std::string> ips = {};
  std::vector<std::string> uris = {};
  // From and until when, counted from now.
  absl::Duration begin = -absl::Hours(1);
  absl::Duration end = absl::Hours(24);
};

// Ends the test program when OpenSSL refuses.
class Authority {
 public:
  explicit Authority(const std::string& name);

  const std::string& pem() const { return pem_; }
  Identity Issue(const Subject& subject);

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Free>;
  using Certificate = std::unique_ptr<X509, Free>;

  static Key NewKey();
  // Signed by `signer`, of whom it says `issuer`; null: by itself.
  static Certificate Make(const Subject& subject, EVP_PKEY* key, X509* issuer, EVP_PKEY* signer);

  Key key_;
  Certificate certificate_;
  std::string pem_;
};

// The serial number of a PEM certificate, in hex.
std::string SerialOf(const std::string& certificate);

// Files that change together, as Kubernetes mounts a secret: a link to a folder of them is replaced
// at once. Who opens one file before that and one after still gets a certificate and another's key.
class SecretFolder {
 public:
  explicit SecretFolder(std::string path) : path_(std::move(path)) {}
  void Put(const std::map<std::string, std::string>& files);
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  const std::string path_;
  int version_ = 0;
};

// Replaces a certificate and its key every millisecond, for as long as it lives.
class Renewals {
 public:
  Renewals(SecretFolder& folder, const Identity& one, const Identity& other);
  ~Renewals();

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace gemmd::e2e
