// Who gets through a TLS listener's handshake, and whom the daemon takes the certificate for.

#include "absl/strings/match.h"
#include "gemmd/v1/device_service.pb.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/secured.h"

namespace gemmd::e2e {
namespace {

using client::Client;
using client::ClientOptions;
using client::TlsOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TlsTest : public testing::Test {
 protected:
  // The first call's outcome, or why there is no connection within `patience`.
  absl::Status Reach(const std::string& target, ClientOptions options,
                     absl::Duration patience = absl::Seconds(20)) {
    options.connect_timeout = patience;
    absl::StatusOr<Client> client = Client::Connect(target, options);
    return client.ok() ? client->GetServerInfo().status() : client.status();
  }
  // The tenant that the daemon takes the caller for.
  std::string TenantOf(const std::string& target, const ClientOptions& options) {
    return Must(Must(Client::Connect(target, options)).GetServerInfo()).tenant();
  }
  void ExpectNoConnection(const std::string& target, const ClientOptions& options,
                          const std::string& cause) {
    absl::Status status;
    // On a busy machine a handshake may not get as far as its failure within one try.
    EXPECT_TRUE(WaitUntil([&] {
      status = Reach(target, options, absl::Milliseconds(500));
      return status.code() != absl::StatusCode::kUnavailable ||
             absl::StrContains(status.message(), cause);
    }));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(cause));
    EXPECT_EQ(client::ReasonOf(status), "");
  }

  Secured secured_;
};

TEST_F(TlsTest, ACertificateIsItsTenantAndRole) {
  EXPECT_EQ(TenantOf(secured_.by_certificate(), secured_.WithCertificate("user")), "default");
  EXPECT_EQ(TenantOf(secured_.by_certificate(), secured_.WithCertificate("batch")), "batch");
  Client observer =
      Must(Client::Connect(secured_.by_certificate(), secured_.WithCertificate("observer")));
  EXPECT_TRUE(observer.GetLog().ok());
  EXPECT_EQ(client::ReasonOf(observer.OpenSession().status()), "ROLE");
}

TEST_F(TlsTest, TheServersNameAndAuthorityAreChecked) {
  const ClientOptions good = secured_.WithCertificate("user");
  EXPECT_EQ(Reach(secured_.by_certificate(), good), absl::OkStatus());
  ClientOptions options = good;
  options.tls->server_name = "gemmd.test";
  EXPECT_EQ(Reach(secured_.by_certificate(), options), absl::OkStatus());
  options.tls->server_name = "other.test";
  ExpectNoConnection(secured_.by_certificate(), options, "does not have the name 'other.test'");
  options = good;
  Authority other("others");
  WriteFile(secured_.dir().File("others.crt"), other.pem());
  options.tls->ca_file = secured_.dir().File("others.crt");
  ExpectNoConnection(secured_.by_certificate(), options, "is not signed by");
  options.tls->ca_file = "";
  ExpectNoConnection(secured_.by_certificate(), options, "this system's authorities");
}

TEST_F(TlsTest, PlaintextDoesNotGetThrough) {
  ExpectNoConnection(secured_.by_certificate(), {}, "set tls");
  ExpectNoConnection(secured_.by_either(), secured_.WithToken("user"), "set tls");
}

TEST_F(TlsTest, ClientsWithoutAGoodCertificateDoNotGetThrough) {
  ExpectNoConnection(secured_.by_certificate(), secured_.WithToken("user", /*tls=*/true),
                     "asks for a client certificate");
  Authority other("others");
  const Identity foreign =
      other.Issue({.common_name = "user", .uris = {"spiffe://gemmd.test/user"}});
  ExpectNoConnection(secured_.by_certificate(), secured_.WithCertificate(foreign),
                     "does not take cert_file=");
  const Identity lapsed = secured_.clients().Issue({.common_name = "user",
                                                    .uris = {"spiffe://gemmd.test/user"},
                                                    .begin = -absl::Hours(2),
                                                    .end = -absl::Hours(1)});
  ExpectNoConnection(secured_.by_certificate(), secured_.WithCertificate(lapsed),
                     "is valid no longer");
  // One that the server's authority signed is not one of a client's.
  const Identity server =
      secured_.servers().Issue({.common_name = "user", .uris = {"spiffe://gemmd.test/user"}});
  ExpectNoConnection(secured_.by_certificate(), secured_.WithCertificate(server),
                     "does not take cert_file=");
  // Nor does it help where a token would do: what is given is checked.
  ClientOptions both = secured_.WithCertificate(foreign);
  both.token_file = secured_.WithToken("user").token_file;
  ExpectNoConnection(secured_.by_either(), both, "does not take cert_file=");
}

TEST_F(TlsTest, AnUnknownNameIsRefusedByName) {
  for (const Identity& identity :
       {secured_.CallerIdentity("stranger"), secured_.clients().Issue({.common_name = "user"}),
        secured_.clients().Issue({.common_name = "x", .uris = {"spiffe://gemmd.test/user/"}})}) {
    const absl::Status status =
        Reach(secured_.by_certificate(), secured_.WithCertificate(identity));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_EQ(client::ReasonOf(status), "UNKNOWN_CERTIFICATE") << status;
  }
}

TEST_F(TlsTest, WhereBothServeATokenDoesWithoutACertificate) {
  EXPECT_EQ(TenantOf(secured_.by_either(), secured_.WithToken("batch", /*tls=*/true)), "batch");
  EXPECT_EQ(TenantOf(secured_.by_either(), secured_.WithCertificate("batch")), "batch");
  ClientOptions neither;
  neither.tls = TlsOptions{.ca_file = secured_.authority_file()};
  const absl::Status status = Reach(secured_.by_either(), neither);
  EXPECT_EQ(client::ReasonOf(status), "NO_CREDENTIALS") << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("client certificate"), HasSubstr("Bearer")));
}

TEST_F(TlsTest, AServerWhoseTimeIsOverIsRefused) {
  secured_.PutServer(secured_.servers().Issue({.common_name = "gemmd",
                                               .ips = {"127.0.0.1"},
                                               .begin = -absl::Hours(2),
                                               .end = -absl::Hours(1)}),
                     secured_.clients().pem());
  EXPECT_TRUE(WaitUntil([&] {
    return absl::IsUnavailable(Reach(secured_.by_certificate(), secured_.WithCertificate("user"),
                                     absl::Milliseconds(500)));
  }));
  ExpectNoConnection(secured_.by_certificate(), secured_.WithCertificate("user"),
                     "or its time is over");
}

TEST_F(TlsTest, GemmctlSpeaksItToo) {
  const ClientOptions options = secured_.WithCertificate("batch");
  const auto ctl = [&](std::vector<std::string> args) {
    args.insert(args.begin(), GEMMCTL_PATH);
    args.insert(args.end(), {"--server", secured_.by_certificate(), "--timeout", "1s"});
    return RunToEnd(args);
  };
  const std::vector<std::string> good = {"info",       "--json",
                                         "--tls-ca",   options.tls->ca_file,
                                         "--tls-cert", options.tls->cert_file,
                                         "--tls-key",  options.tls->key_file};
  const Finished done = ctl(good);
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("\"batch\""));

  const Finished plaintext = ctl({"info"});
  EXPECT_EQ(plaintext.status, 4);
  EXPECT_THAT(plaintext.err, HasSubstr("give --tls-ca"));
  const Finished nobody = ctl({"info", "--tls-ca", options.tls->ca_file});
  EXPECT_EQ(nobody.status, 4);
  EXPECT_THAT(nobody.err, HasSubstr("--tls-cert and --tls-key"));
  const Finished keyless =
      ctl({"info", "--tls-ca", options.tls->ca_file, "--tls-cert", options.tls->cert_file});
  EXPECT_EQ(keyless.status, 3);
  EXPECT_THAT(keyless.err, HasSubstr("belong together"));
}

}  // namespace
}  // namespace gemmd::e2e
