// A daemon that asks who calls, with a listener of each kind, and callers of each role: "user",
// "observer" and "admin" of the tenant "default", and "batch", a user of the tenant "batch". Each
// has a token, and a certificate with the URI spiffe://gemmd.test/<name>.
//
//   Secured secured;
//   auto client = client::Client::Connect(secured.by_token(), secured.WithToken("observer"));

#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>
#include <string>

#include "client/cpp/options.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/daemon.h"

namespace gemmd::e2e {

// Of the caller `name`: not a secret in a test, and long enough.
std::string TokenOf(const std::string& name);
// "sha256:... <name> <tenant> <role><more>", with a newline.
std::string TokenLine(const std::string& token, const std::string& name, const std::string& tenant,
                      const std::string& role, const std::string& more = "");
// The lines of the four callers.
std::string TokenLines();

struct SecuredOptions {
  std::string config = "";
  std::string tokens = TokenLines();
  std::string devices = DeviceEntry();
};

class Secured {
 public:
  explicit Secured(const SecuredOptions& options = {});

  Daemon& daemon() { return *daemon_; }
  const std::string& by_token() const { return daemon_->listener(0); }  // plaintext on loopback
  const std::string& by_certificate() const { return daemon_->listener(1); }  // mutual TLS
  const std::string& by_either() const { return daemon_->listener(2); }  // TLS, either of the two

  Authority& servers() { return servers_; }
  Authority& clients() { return clients_; }
  // The server's files: tls.crt, tls.key, clients.crt. All of them at once.
  void PutServer(const Identity& identity, const std::string& client_authorities);
  Identity ServerIdentity() {
    return servers_.Issue({.common_name = "gemmd", .dns = {"gemmd.test"}, .ips = {"127.0.0.1"}});
  }
  Identity CallerIdentity(const std::string& name) {
    return clients_.Issue({.common_name = name, .uris = {"spiffe://gemmd.test/" + name}});
  }

  // A token file of a client's own. TLS besides, towards by_either().
  client::ClientOptions WithToken(const std::string& name, bool tls = false);
  client::ClientOptions WithCertificate(const Identity& identity);
  client::ClientOptions WithCertificate(const std::string& name) {
    return WithCertificate(CallerIdentity(name));
  }
  // The same for calls without the client library.
  std::shared_ptr<grpc::ChannelCredentials> RawTls(const Identity& identity = {}) const;

  std::string token_file() const { return dir_.File("tokens"); }
  std::string authority_file() const { return dir_.File("servers.crt"); }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
  Authority servers_{"servers"};
  Authority clients_{"clients"};
  SecretFolder server_files_{dir_.File("server")};
  int identities_ = 0;
  std::unique_ptr<Daemon> daemon_;
};

}  // namespace gemmd::e2e
