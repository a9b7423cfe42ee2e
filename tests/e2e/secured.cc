#include "tests/e2e/secured.h"

#include <openssl/sha.h>
#include <sys/stat.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace gemmd::e2e {
namespace {

// `tls` is a listener's block, and what rules there are for whom.
std::string ConfigText(const std::string& dir) {
  const std::string identity =
      absl::StrCat("certificate_file: \"", dir, "/server/tls.crt\" ", "key_file: \"", dir,
                   "/server/tls.key\" ", "client_ca_file: \"", dir, "/server/clients.crt\"");
  std::string text = absl::StrCat(
      "tenants { name: \"default\" } tenants { name: \"batch\" }\n",
      "listeners { address: \"127.0.0.1:0\" credentials: CREDENTIAL_TOKEN }\n",
      "listeners { address: \"127.0.0.1:0\" tls { ", identity,
      " } credentials: CREDENTIAL_CERTIFICATE }\n", "listeners { address: \"127.0.0.1:0\" tls { ",
      identity, " } credentials: CREDENTIAL_CERTIFICATE credentials: CREDENTIAL_TOKEN }\n",
      "auth { token_file: \"", dir, "/tokens\"\n");
  const auto add_rule = [&](const char* name, const char* tenant, const char* role) {
    absl::StrAppend(&text, "  certificates { name: \"spiffe://gemmd.test/", name, "\" tenant: \"",
                    tenant, "\" role: ", role, " }\n");
  };
  add_rule("user", "default", "ROLE_USER");
  add_rule("observer", "default", "ROLE_OBSERVER");
  add_rule("admin", "default", "ROLE_ADMIN");
  add_rule("batch", "batch", "ROLE_USER");
  return text + "}\n";
}

}  // namespace

std::string TokenOf(const std::string& name) {
  std::string token = name + ".";
  while (token.size() < 40) token += "0123456789abcdef";
  return token;
}

std::string TokenLine(const std::string& token, const std::string& name, const std::string& tenant,
                      const std::string& role, const std::string& more) {
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash);
  const absl::string_view bytes(reinterpret_cast<const char*>(hash), sizeof(hash));
  return absl::StrCat("sha256:", absl::BytesToHexString(bytes), " ", name, " ", tenant, " ", role,
                      more, "\n");
}

std::string TokenLines() {
  return TokenLine(TokenOf("user"), "user", "default", "user") +
         TokenLine(TokenOf("observer"), "observer", "default", "observer") +
         TokenLine(TokenOf("admin"), "admin", "default", "admin") +
         TokenLine(TokenOf("batch"), "batch", "batch", "user");
}

Secured::Secured(const SecuredOptions& options) {
  WriteFile(token_file(), options.tokens);
  WriteFile(authority_file(), servers_.pem());
  PutServer(ServerIdentity(), clients_.pem());
  daemon_ = std::make_unique<Daemon>(DaemonOptions{
      .config = ConfigText(dir_.path()) + options.config, .devices = options.devices});
}

void Secured::PutServer(const Identity& identity, const std::string& client_authorities) {
  server_files_.Put({{"tls.crt", identity.certificate},
                     {"tls.key", identity.key},
                     {"clients.crt", client_authorities}});
}

client::ClientOptions Secured::WithToken(const std::string& name, bool tls) {
  const std::string file = dir_.File(name + ".token");
  WriteFile(file, TokenOf(name) + "\n");
  chmod(file.c_str(), 0600);
  client::ClientOptions options;
  options.token_file = file;
  if (tls) options.tls = client::TlsOptions{.ca_file = authority_file()};
  return options;
}

client::ClientOptions Secured::WithCertificate(const Identity& identity) {
  const std::string stem = dir_.File(absl::StrCat("client-", ++identities_));
  WriteFile(stem + ".crt", identity.certificate);
  WriteFile(stem + ".key", identity.key);
  client::ClientOptions options;
  options.tls = client::TlsOptions{
      .ca_file = authority_file(), .cert_file = stem + ".crt", .key_file = stem + ".key"};
  return options;
}

std::shared_ptr<grpc::ChannelCredentials> Secured::RawTls(const Identity& identity) const {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = servers_.pem();
  options.pem_private_key = identity.key;
  options.pem_cert_chain = identity.certificate;
  return grpc::SslCredentials(options);
}

}  // namespace gemmd::e2e
