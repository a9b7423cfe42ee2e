// Certificates and authorities replaced on both sides while calls go on: no call fails, new
// connections see the new ones, and what was signed by an authority that is gone gets no further.

#include <gmock/gmock.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/auth_context.h>
#include <grpcpp/support/channel_arguments.h>

#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "gemmd/v1/device_service.grpc.pb.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/secured.h"

namespace gemmd::e2e {
namespace {

using client::Client;
using client::ClientOptions;

// The serial number of the certificate that a new connection is shown; "" when none stands.
std::string ServedSerial(const std::string& target,
                         const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub =
      v1::DeviceService::NewStub(grpc::CreateCustomChannel(target, credentials, arguments));
  grpc::ClientContext context;
  v1::ServerInfo info;
  if (!stub->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok()) return "";
  const auto shown = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return shown.empty() ? "" : SerialOf(std::string(shown[0].data(), shown[0].size()));
}

// Calls without an end: on one connection that stays, and each on a connection of its own.
class Load {
 public:
  Load(const std::string& target, const ClientOptions& options)
      : steady_([this, target, options] {
          Client client = Must(Client::Connect(target, options));
          while (!stop_) Expect(client.GetServerInfo().status(), calls_);
        }),
        fresh_([this, target, options] {
          while (!stop_) {
            absl::StatusOr<Client> client = Client::Connect(target, options);
            Expect(client.ok() ? client->GetServerInfo().status() : client.status(), connections_);
          }
        }) {}
  ~Load() {
    stop_ = true;
    steady_.join();
    fresh_.join();
  }
  // Both go on from here.
  void Advance() {
    EXPECT_TRUE(WaitUntil([this, calls = calls_ + 20, connections = connections_ + 2] {
      return calls_ > calls && connections_ > connections;
    }));
  }

 private:
  void Expect(const absl::Status& status, std::atomic<int>& count) {
    EXPECT_TRUE(status.ok()) << status;
    ++count;
  }

  std::atomic<bool> stop_ = false;
  std::atomic<int> calls_ = 0;
  std::atomic<int> connections_ = 0;
  std::thread steady_;
  std::thread fresh_;
};

class RotationTest : public testing::Test {
 protected:
  RotationTest() { PutCaller(secured_.CallerIdentity("user"), secured_.servers().pem()); }

  // The client's own files, all at once.
  void PutCaller(const Identity& identity, const std::string& authorities) {
    caller_.Put({{"tls.crt", identity.certificate},
                 {"tls.key", identity.key},
                 {"servers.crt", authorities}});
  }
  ClientOptions Options() const {
    ClientOptions options;
    options.tls = client::TlsOptions{.ca_file = caller_.File("servers.crt"),
                                     .cert_file = caller_.File("tls.crt"),
                                     .key_file = caller_.File("tls.key")};
    return options;
  }
  absl::Status Reach(const ClientOptions& options) {
    absl::StatusOr<Client> client = Client::Connect(secured_.by_certificate(), options);
    return client.ok() ? client->GetServerInfo().status() : client.status();
  }

  Secured secured_;
  SecretFolder caller_{secured_.dir().File("caller")};
};

TEST_F(RotationTest, TheServersIdentityUnderLoad) {
  Load load(secured_.by_certificate(), Options());
  const auto probe = secured_.RawTls(secured_.CallerIdentity("observer"));
  std::string before = ServedSerial(secured_.by_certificate(), probe);
  EXPECT_NE(before, "");
  for (int i = 0; i < 3; ++i) {
    load.Advance();
    const Identity next = secured_.ServerIdentity();
    secured_.PutServer(next, secured_.clients().pem());
    const std::string serial = SerialOf(next.certificate);
    EXPECT_NE(serial, before);
    EXPECT_TRUE(
        WaitUntil([&] { return ServedSerial(secured_.by_certificate(), probe) == serial; }));
    before = serial;
  }
  load.Advance();
}

TEST_F(RotationTest, FilesThatAreNotRightAreNotShownAndNamedInTheLog) {
  const auto probe = secured_.RawTls(secured_.CallerIdentity("observer"));
  const std::string before = ServedSerial(secured_.by_certificate(), probe);
  const Identity next = secured_.ServerIdentity();
  const std::string authority = secured_.clients().pem();
  const auto loads = [&](const std::string& result) {
    return secured_.daemon().Metric("gemmd_certificate_loads_total", "result=\"" + result + "\"");
  };
  Load load(secured_.by_certificate(), Options());
  int faults = 0;
  const auto expect_refused = [&](const Identity& identity, const std::string& authorities,
                                  const std::string& told) {
    secured_.PutServer(identity, authorities);
    faults += 2;  // of two listeners
    EXPECT_TRUE(WaitUntil([&] { return loads("invalid") == faults; })) << told;
    EXPECT_THAT(secured_.daemon().LogWith(told), testing::HasSubstr(told));
    load.Advance();
    EXPECT_EQ(ServedSerial(secured_.by_certificate(), probe), before) << told;
  };
  expect_refused({next.certificate, "junk"}, authority, "tls.key: has no PEM key");
  expect_refused({"junk", next.key}, authority, "tls.crt: has no PEM certificate");
  expect_refused(next, "junk", "clients.crt: has no PEM certificate");
  expect_refused({next.certificate, secured_.ServerIdentity().key}, authority, "is not the key of");
  secured_.PutServer(next, authority);
  EXPECT_TRUE(WaitUntil([&] {
    return ServedSerial(secured_.by_certificate(), probe) == SerialOf(next.certificate);
  }));
  EXPECT_TRUE(WaitUntil([&] { return loads("ok") == 2; }));
  EXPECT_EQ(loads("invalid"), faults);
}

TEST_F(RotationTest, TheServersAuthorityUnderLoad) {
  Authority next("servers, the next");
  Load load(secured_.by_certificate(), Options());
  load.Advance();
  const Identity caller = secured_.CallerIdentity("user");
  PutCaller(caller, secured_.servers().pem() + next.pem());
  load.Advance();
  const Identity server = next.Issue({.common_name = "gemmd", .ips = {"127.0.0.1"}});
  secured_.PutServer(server, secured_.clients().pem());
  // Who trusts the old authority alone is the first to see it.
  const auto old = secured_.RawTls(caller);
  EXPECT_TRUE(WaitUntil([&] { return ServedSerial(secured_.by_certificate(), old).empty(); }));
  PutCaller(caller, next.pem());
  load.Advance();
}

TEST_F(RotationTest, TheClientsAuthorityUnderLoadAndWhatItSignedIsRefusedAfterwards) {
  Authority next("clients, the next");
  const client::TlsOptions old = *secured_.WithCertificate("user").tls;
  ClientOptions revoked;
  revoked.connect_timeout = absl::Milliseconds(500);
  revoked.tls = old;
  EXPECT_TRUE(WaitUntil([&] { return Reach(revoked).ok(); }));

  Load load(secured_.by_certificate(), Options());
  load.Advance();
  const Identity server = secured_.ServerIdentity();
  secured_.PutServer(server, secured_.clients().pem() + next.pem());
  const Identity renewed =
      next.Issue({.common_name = "user", .uris = {"spiffe://gemmd.test/user"}});
  const auto probe = secured_.RawTls(renewed);
  EXPECT_TRUE(WaitUntil([&] { return !ServedSerial(secured_.by_certificate(), probe).empty(); }));
  PutCaller(renewed, secured_.servers().pem());
  load.Advance();
  secured_.PutServer(server, next.pem());
  EXPECT_TRUE(WaitUntil([&] { return absl::IsUnavailable(Reach(revoked)); }));
  for (int i = 0; i < 3; ++i) {
    absl::Status refused;
    // On a busy machine a handshake may not get as far as its failure within one try.
    EXPECT_TRUE(WaitUntil([&] {
      refused = Reach(revoked);
      return refused.ok() || absl::StrContains(refused.message(), "does not take cert_file=");
    }));
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  }
  load.Advance();
}

}  // namespace
}  // namespace gemmd::e2e
