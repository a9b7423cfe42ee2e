// TLS and tokens of the client, against a fake daemon with real certificates.

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <mutex>
#include <vector>

#include "absl/strings/match.h"
#include "client/cpp/client.h"
#include "client/cpp/internal/connect/tls_files.h"
#include "gemmd/v1/device_service.pb.h"
#include "tests/client/cpp/eventually.h"
#include "tests/client/cpp/fake_daemon.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/process.h"

namespace gemmd::client {
namespace {

using e2e::Authority;
using e2e::Identity;
using e2e::SecretFolder;
using e2e::Subject;
using e2e::WriteFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Subject kLoopback = {.common_name = "gemmd", .dns = {"gemmd.example"}, .ips = {"127.0.0.1"}};
const Subject kLapsed = {
    .common_name = "late", .ips = {"127.0.0.1"}, .begin = -absl::Hours(2), .end = -absl::Hours(1)};

// `client_ca`: clients must show a certificate of it.
std::shared_ptr<grpc::ServerCredentials> Tls(const Identity& identity,
                                             const std::string& client_ca = "") {
  grpc::SslServerCredentialsOptions options(
      client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                        : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = client_ca;
  options.pem_key_cert_pairs.push_back({identity.key, identity.certificate});
  return grpc::SslServerCredentials(options);
}

class SecurityTest : public testing::Test {
 protected:
  // PEM files under one name, for TlsOptions.
  std::string Write(const std::string& name, const std::string& text) {
    WriteFile(dir_.File(name), text);
    return dir_.File(name);
  }
  TlsOptions WithIdentity(const Identity& identity) {
    return {.ca_file = ca_file_,
            .cert_file = Write("client.crt", identity.certificate),
            .key_file = Write("client.key", identity.key)};
  }
  // Connects and makes one call.
  absl::Status Reach(const FakeDaemon& daemon, std::optional<TlsOptions> tls,
                     absl::Duration patience = absl::Seconds(30)) {
    absl::StatusOr<Client> client =
        Client::Connect(daemon.target(), {.connect_timeout = patience, .tls = std::move(tls)});
    return client.ok() ? client->GetServerInfo().status() : client.status();
  }
  // That no connection stands, and why. On a busy machine a handshake may not get as far as its
  // failure within one try.
  void ExpectRefusal(const FakeDaemon& daemon, const std::optional<TlsOptions>& tls,
                     absl::string_view cause) {
    absl::Status status;
    EXPECT_TRUE(Eventually([&] {
      status = Reach(daemon, tls, absl::Milliseconds(400));
      return absl::StrContains(status.message(), cause);
    })) << status;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1"));
  }

  e2e::TempDir dir_;
  Authority ca_{"servers"};
  Authority other_{"others"};
  const std::string ca_file_ = Write("ca.crt", ca_.pem());
};

TEST_F(SecurityTest, ReachesAServerWhoseAuthorityItKnows) {
  FakeDaemon daemon({.loopback = true, .credentials = Tls(ca_.Issue(kLoopback))});
  EXPECT_EQ(Reach(daemon, TlsOptions{.ca_file = ca_file_}), absl::OkStatus());
  EXPECT_EQ(Reach(daemon, TlsOptions{.ca_file = ca_file_, .server_name = "gemmd.example"}),
            absl::OkStatus());
}

TEST_F(SecurityTest, SaysWhyNoConnectionStandsAndWhatToDo) {
  struct Row {
    const char* what;
    Identity server;
    std::optional<TlsOptions> tls;
    const char* cause;
  };
  const Identity good = ca_.Issue(kLoopback);
  const std::string other_file = Write("other.crt", other_.pem());
  const Row rows[] = {
      {"plaintext", good, std::nullopt, "its listener may have TLS; set tls"},
      {"another authority", good, TlsOptions{.ca_file = other_file}, "is not signed by ca_file="},
      {"the system's", good, TlsOptions{}, "is not signed by any of this system's authorities"},
      {"another name", good, TlsOptions{.ca_file = ca_file_, .server_name = "not.example"},
       "does not have the name 'not.example'"},
      {"lapsed", ca_.Issue(kLapsed), TlsOptions{.ca_file = ca_file_}, "or its time is over"},
  };
  for (const Row& row : rows) {
    FakeDaemon daemon({.loopback = true, .credentials = Tls(row.server)});
    SCOPED_TRACE(row.what);
    ExpectRefusal(daemon, row.tls, row.cause);
  }
  FakeDaemon plain({.loopback = true});
  ExpectRefusal(plain, TlsOptions{.ca_file = ca_file_}, "speaks no TLS");
}

TEST_F(SecurityTest, ShowsItsCertificateWhereOneIsAskedFor) {
  FakeDaemon daemon({.loopback = true, .credentials = Tls(ca_.Issue(kLoopback), ca_.pem())});
  EXPECT_EQ(Reach(daemon, WithIdentity(ca_.Issue({.common_name = "c"}))), absl::OkStatus());
  ExpectRefusal(daemon, TlsOptions{.ca_file = ca_file_},
                "asks for a client certificate (cert_file and key_file)");
  ExpectRefusal(daemon, WithIdentity(other_.Issue({.common_name = "c"})),
                "does not take cert_file=");
  ExpectRefusal(daemon, WithIdentity(ca_.Issue(kLapsed)), "is valid no longer, since");
}

TEST_F(SecurityTest, ACallWithoutAConnectionSaysWhyToo) {
  FakeDaemon daemon({.loopback = true, .credentials = Tls(ca_.Issue(kLoopback))});
  absl::StatusOr<Client> client = Client::Connect(
      daemon.target(), {.connect_timeout = absl::ZeroDuration(),
                        .tls = TlsOptions{.ca_file = ca_file_, .server_name = "not.example"}});
  ASSERT_EQ(client.status(), absl::OkStatus());
  EXPECT_THAT(client->GetServerInfo().status().ToString(), HasSubstr("name 'not.example'"));
}

TEST_F(SecurityTest, FilesAreLookedAtBeforeAnythingIsSent) {
  const Identity one = ca_.Issue({.common_name = "c"}), two = ca_.Issue({.common_name = "c"});
  const std::string crt = Write("one.crt", one.certificate), key = Write("one.key", one.key);
  struct Row {
    TlsOptions tls;
    absl::StatusCode code;
    const char* text;
  };
  const Row rows[] = {
      {{.ca_file = dir_.File("absent")}, absl::StatusCode::kNotFound, "ca_file="},
      {{.ca_file = dir_.path()}, absl::StatusCode::kPermissionDenied, "Is a directory"},
      {{.ca_file = key}, absl::StatusCode::kInvalidArgument, "holds no PEM certificate"},
      {{.cert_file = crt}, absl::StatusCode::kInvalidArgument, "belong together"},
      {{.cert_file = crt, .key_file = crt}, absl::StatusCode::kInvalidArgument, "private key"},
      {{.cert_file = crt, .key_file = Write("two.key", two.key)},
       absl::StatusCode::kInvalidArgument,
       "is not the key of"},
  };
  for (const Row& row : rows) {
    const absl::Status status = Client::Connect("127.0.0.1:1", {.tls = row.tls}).status();
    EXPECT_EQ(status.code(), row.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.text));
  }
  EXPECT_THAT(Client::Connect("unix:/tmp/x", {.tls = TlsOptions{}}).status().ToString(),
              HasSubstr("TLS is for TCP"));
}

TEST_F(SecurityTest, APairInTheMiddleOfItsRenewalIsNotRefused) {
  const Identity one = ca_.Issue({.common_name = "c"}), two = ca_.Issue({.common_name = "c"});
  SecretFolder folder(dir_.File("identity"));
  folder.Put({{"tls.crt", one.certificate}, {"tls.key", one.key}});
  const TlsOptions tls = {.cert_file = folder.File("tls.crt"), .key_file = folder.File("tls.key")};
  const e2e::Renewals renewals(folder, one, two);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(CheckTlsFiles(tls), absl::OkStatus());
}

TEST_F(SecurityTest, NewConnectionsShowARenewedCertificate) {
  FakeDaemon daemon({.loopback = true, .credentials = Tls(ca_.Issue(kLoopback), ca_.pem())});
  SecretFolder folder(dir_.File("identity"));
  const auto put = [&](const Identity& identity) {
    folder.Put({{"tls.crt", identity.certificate}, {"tls.key", identity.key}});
  };
  put(ca_.Issue(kLapsed));
  absl::StatusOr<Client> client =
      Client::Connect(daemon.target(), {.connect_timeout = absl::ZeroDuration(),
                                        .tls = TlsOptions{.ca_file = ca_file_,
                                                          .cert_file = folder.File("tls.crt"),
                                                          .key_file = folder.File("tls.key")}});
  ASSERT_EQ(client.status(), absl::OkStatus());
  EXPECT_EQ(client->GetServerInfo().status().code(), absl::StatusCode::kUnavailable);
  put(ca_.Issue({.common_name = "renewed"}));
  EXPECT_TRUE(Eventually([&] { return client->GetServerInfo().ok(); }));
}

TEST_F(SecurityTest, TheTokenGoesWithEveryCall) {
  FakeDaemon daemon({.loopback = true});
  const std::string file = Write("token", std::string(32, 't') + "\n");
  absl::StatusOr<Client> client = Client::Connect(daemon.target(), {.token_file = file});
  ASSERT_EQ(client.status(), absl::OkStatus());
  const std::string header = "Bearer " + std::string(32, 't');
  EXPECT_TRUE(client->GetServerInfo().ok());
  EXPECT_EQ(daemon.LastMetadata("authorization"), header);

  // A replaced file serves from the next look on, a second later.
  WriteFile(file, std::string(40, 'u'));
  EXPECT_TRUE(Eventually([&] {
    return client->GetServerInfo().ok() &&
           daemon.LastMetadata("authorization") == "Bearer " + std::string(40, 'u');
  }));
}

TEST_F(SecurityTest, ATokenDoesNotTravelInPlaintextUnlessToldTo) {
  const std::string file = Write("token", std::string(32, 't'));
  const auto connect = [&](const std::string& target, ClientOptions options) {
    options.token_file = file;
    options.connect_timeout = absl::ZeroDuration();
    return Client::Connect(target, options).status();
  };
  for (const char* target :
       {"10.1.2.3:8470", "gemmd.example:8470", "127.0.0.1.example:8470", "dns:///localhost.example",
        "ipv4:127.0.0.1:1,10.1.2.3:1", "dns://10.1.2.3/localhost", "[fe80::1]:8470", "0.0.0.0:1"}) {
    const absl::Status refused = connect(target, {});
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << target;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("plaintext"), HasSubstr("use tls")));
    EXPECT_EQ(connect(target, {.send_token_in_plaintext = true}), absl::OkStatus()) << target;
    EXPECT_EQ(connect(target, {.tls = TlsOptions{.ca_file = ca_file_}}), absl::OkStatus());
  }
  for (const char* target :
       {"127.0.0.1:8470", "127.3.2.1:1", "[::1]:8470", "localhost:8470", "dns:///localhost:8470",
        "ipv4:127.0.0.1:8470", "ipv6:[::1]:8470", "unix:/tmp/nobody", "unix-abstract:nobody"}) {
    EXPECT_EQ(connect(target, {}), absl::OkStatus()) << target;
  }
}

TEST_F(SecurityTest, WhatIsWrongWithATokensFileIsSaidWithoutShowingIt) {
  const std::string secret = "s3cret-s3cret-s3cret-s3cret-s3cret";
  struct Row {
    std::string text;
    const char* what;
  };
  const Row rows[] = {
      {"", "0 characters"},
      {"short", "5 characters"},
      {secret + "\n" + secret, "one token alone"},
      {secret + " user", "one token alone"},
      {secret + '\x01', "not visible ASCII"},
      {std::string(5000, 'x'), "characters, not 32 to 4096"},
      {"sha256:" + std::string(64, 'a') + " name default user",
       "a line of the server's token file"},
  };
  for (const Row& row : rows) {
    const std::string file = Write("token", row.text);
    const absl::Status status = Client::Connect("127.0.0.1:1", {.token_file = file}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << row.what;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(row.what), HasSubstr(file)));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("s3cret")));
  }
  EXPECT_EQ(Client::Connect("127.0.0.1:1", {.token_file = dir_.File("absent")}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Client::Connect("127.0.0.1:1", {.token_file = dir_.path()}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SecurityTest, TroubleWithTheTokensFileLaterIsToldOnceAndTheTokenStays) {
  FakeDaemon daemon({.loopback = true});
  const std::string file = Write("token", std::string(32, 't'));
  chmod(file.c_str(), 0644);
  std::mutex mutex;
  std::vector<std::string> told;
  const auto told_so_far = [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    return told;
  };
  absl::StatusOr<Client> client = Client::Connect(
      daemon.target(), {.token_file = file,
                        .on_background_error = [&](absl::string_view, const absl::Status& status) {
                          const std::lock_guard<std::mutex> lock(mutex);
                          told.push_back(std::string(status.message()));
                        }});
  ASSERT_EQ(client.status(), absl::OkStatus());
  ASSERT_EQ(told_so_far().size(), 1);
  EXPECT_THAT(told_so_far()[0], HasSubstr("may be read by every user"));

  WriteFile(file, "gone wrong");
  ASSERT_TRUE(Eventually([&] {
    EXPECT_TRUE(client->GetServerInfo().ok());
    return told_so_far().size() == 2;
  }));
  EXPECT_THAT(told_so_far()[1], HasSubstr("the token before it stays"));
  EXPECT_EQ(daemon.LastMetadata("authorization"), "Bearer " + std::string(32, 't'));

  WriteFile(file, std::string(32, 'v'));
  EXPECT_TRUE(Eventually([&] {
    EXPECT_TRUE(client->GetServerInfo().ok());
    return daemon.LastMetadata("authorization") == "Bearer " + std::string(32, 'v');
  }));
  EXPECT_EQ(told_so_far().size(), 2);
}

}  // namespace
}  // namespace gemmd::client
