// Tokens and user ids: who is taken for whom, and how that changes while the daemon runs.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gemmd/v1/device_service.pb.h"
#include "gemmd/v1/session_service.pb.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/generic_call.h"
#include "tests/e2e/secured.h"
#include "tests/e2e/wire.h"

namespace gemmd::e2e {
namespace {

using client::Client;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kServerInfo[] = "/gemmd.v1.DeviceService/GetServerInfo";

class AuthTest : public testing::Test {
 protected:
  Answered Ask(const Metadata& metadata, const std::string& method = kServerInfo,
               const std::string& request = "") {
    return CallByName(channel_, method, request, metadata);
  }
  Answered AskWithToken(const std::string& token) {
    return Ask({{"authorization", "Bearer " + token}});
  }
  void ExpectRefused(const Metadata& metadata, const std::string& reason) {
    const Answered answered = Ask(metadata);
    EXPECT_EQ(answered.status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(answered.reason, reason) << answered.status.error_message();
  }
  double Loads(const std::string& result) {
    return secured_.daemon().Metric("gemmd_token_file_loads_total", "result=\"" + result + "\"");
  }
  // Replaces the file at once, and waits until the daemon has read it.
  void PutTokens(const std::string& lines, const std::string& result = "ok") {
    const double before = Loads(result);
    WriteFile(secured_.token_file() + ".new", lines);
    std::rename((secured_.token_file() + ".new").c_str(), secured_.token_file().c_str());
    EXPECT_TRUE(WaitUntil([&] { return Loads(result) > before; }));
  }

  Secured secured_;
  std::shared_ptr<grpc::Channel> channel_ =
      grpc::CreateChannel(secured_.by_token(), grpc::InsecureChannelCredentials());
};

TEST_F(AuthTest, OnlyAGoodTokenIsTaken) {
  EXPECT_TRUE(AskWithToken(TokenOf("user")).status.ok());
  EXPECT_TRUE(Ask({{"authorization", "bearer " + TokenOf("user")}}).status.ok());
  ExpectRefused({}, "NO_CREDENTIALS");
  ExpectRefused({{"authorization", "Basic " + TokenOf("user")}}, "NO_CREDENTIALS");
  ExpectRefused({{"authorization", TokenOf("user")}}, "NO_CREDENTIALS");
  ExpectRefused({{"x-authorization", "Bearer " + TokenOf("user")}}, "NO_CREDENTIALS");
  ExpectRefused({{"authorization", "Bearer "}}, "BAD_TOKEN");
  ExpectRefused({{"authorization", "Bearer " + TokenOf("stranger")}}, "BAD_TOKEN");
  ExpectRefused({{"authorization", "Bearer " + TokenOf("user").substr(1)}}, "BAD_TOKEN");
  ExpectRefused({{"authorization", "Bearer " + TokenOf("user") + "x"}}, "BAD_TOKEN");
  // What the file holds is not what a caller shows.
  ExpectRefused({{"authorization", "Bearer " + TokenLines().substr(0, 71)}}, "BAD_TOKEN");
  ExpectRefused({{"authorization", "Bearer " + TokenLines().substr(7, 64)}}, "BAD_TOKEN");
  ExpectRefused({{"authorization", "Bearer " + std::string(4000, 'x')}}, "BAD_TOKEN");
}

TEST_F(AuthTest, NoHeaderMakesATenantOfAnother) {
  Client batch = Must(Client::Connect(secured_.by_token(), secured_.WithToken("batch")));
  client::Session theirs = Must(batch.OpenSession({.label = "theirs"}));
  const client::Buffer weights = MakeBuffer(theirs, {4, 4});
  const std::string id(theirs.id().bytes());
  const std::string buffer_id(weights.id().bytes());

  for (const char* header : {"x-tenant", "tenant", "gemmd-tenant", "x-gemmd-tenant", "gemmd-role",
                             "x-forwarded-user", "x-forwarded-client-cert", "x-remote-user"}) {
    for (const char* value : {"batch", "admin", "spiffe://gemmd.test/batch"}) {
      const Metadata metadata = {{"authorization", "Bearer " + TokenOf("user")}, {header, value}};
      const auto ask = [&](const char* method, const google::protobuf::Message& request) {
        return Ask(metadata, method, request.SerializeAsString());
      };
      v1::ServerInfo info;
      info.ParseFromString(Ask(metadata).responses.at(0));
      EXPECT_EQ(info.tenant(), "default") << header;
      v1::ListSessionsResponse sessions;
      sessions.ParseFromString(
          ask("/gemmd.v1.SessionService/ListSessions", v1::ListSessionsRequest()).responses.at(0));
      EXPECT_EQ(sessions.sessions_size(), 0) << header;
      v1::KeepAliveRequest keep_alive;
      keep_alive.set_session_id(id);
      EXPECT_EQ(ask("/gemmd.v1.SessionService/KeepAlive", keep_alive).status.error_code(),
                grpc::StatusCode::NOT_FOUND)
          << header;
      v1::GetBufferRequest get;
      get.set_session_id(id);
      get.set_buffer_id(buffer_id);
      EXPECT_EQ(ask("/gemmd.v1.BufferService/GetBuffer", get).status.error_code(),
                grpc::StatusCode::NOT_FOUND)
          << header;
      EXPECT_EQ(Ask(metadata, "/gemmd.v1.AdminService/GetLog").reason, "ROLE") << header;
    }
  }
  EXPECT_TRUE(theirs.KeepAlive().ok());
}

TEST_F(AuthTest, TokensRotateUnderLoadWithoutAFailedCall) {
  const std::string old_line = TokenLine(TokenOf("user"), "user", "default", "user");
  const std::string new_token = TokenOf("user-renewed");
  const std::string new_line = TokenLine(new_token, "renewed", "default", "user");
  client::ClientOptions options = secured_.WithToken("user");
  Client client = Must(Client::Connect(secured_.by_token(), options));
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  std::thread load([&] {
    while (!stop) {
      const absl::Status status = client.GetServerInfo().status();
      EXPECT_TRUE(status.ok()) << status;
      ++calls;
    }
  });
  PutTokens(old_line + new_line);
  WriteFile(options.token_file, new_token);
  // The log's sample tells when the client has taken it.
  Client admin = Must(Client::Connect(secured_.daemon().target()));
  EXPECT_TRUE(admin.SetLog({.sample_calls = 50}).ok());
  EXPECT_TRUE(WaitUntil(
      [&] { return secured_.daemon().log().find("token:renewed") != std::string::npos; }));
  PutTokens(new_line);
  EXPECT_TRUE(WaitUntil([&, after = calls + 100] { return calls > after; }));
  stop = true;
  load.join();
  EXPECT_EQ(AskWithToken(TokenOf("user")).reason, "BAD_TOKEN");
  EXPECT_EQ(secured_.daemon().Metric("gemmd_tokens"), 1);
}

TEST_F(AuthTest, AFileThatIsNotRightLeavesTheTokensAsTheyWere) {
  const std::string binary("\0\xff\n", 3);
  for (const std::string& wrong : {std::string("sha256:12 user default user\n"), binary,
                                   TokenLine(TokenOf("x"), "x", "nobodys", "user"), TokenLines()}) {
    PutTokens(TokenLines() + wrong, "invalid");
    EXPECT_TRUE(AskWithToken(TokenOf("user")).status.ok());
    EXPECT_EQ(secured_.daemon().Metric("gemmd_tokens"), 4);
  }
  EXPECT_THAT(secured_.daemon().LogWith("line "), HasSubstr("line "));
  PutTokens("# nobody\n");
  EXPECT_EQ(AskWithToken(TokenOf("user")).reason, "BAD_TOKEN");
}

TEST_F(AuthTest, ATokenEndsAtItsTime) {
  const auto line = [](const std::string& name, absl::Duration from_now) {
    return TokenLine(TokenOf(name), name, "default", "user",
                     " expires=" + absl::FormatTime(absl::RFC3339_full, absl::Now() + from_now,
                                                    absl::UTCTimeZone()));
  };
  PutTokens(line("past", -absl::Seconds(1)) + line("soon", absl::Seconds(4)) +
            line("later", absl::Hours(1)));
  EXPECT_EQ(AskWithToken(TokenOf("past")).reason, "EXPIRED_TOKEN");
  EXPECT_TRUE(AskWithToken(TokenOf("later")).status.ok());
  const Answered first = AskWithToken(TokenOf("soon"));
  // A machine that stood still meanwhile has seen it end.
  EXPECT_TRUE(first.status.ok() || first.reason == "EXPIRED_TOKEN");
  EXPECT_TRUE(WaitUntil([&] { return AskWithToken(TokenOf("soon")).reason == "EXPIRED_TOKEN"; }));
  EXPECT_TRUE(AskWithToken(TokenOf("later")).status.ok());
}

TEST_F(AuthTest, AFileThatIsNotRightAtStartIsRefused) {
  TempDir dir;
  WriteFile(dir.File("tokens"), "sha256:12 user default user\n");
  WriteFile(dir.File("config"),
            "listeners { address: \"127.0.0.1:0\" credentials: CREDENTIAL_TOKEN }\n"
            "auth { token_file: \"" +
                dir.File("tokens") + "\" }\n");
  const Finished done = RunToEnd({GEMMD_PATH, "--config", dir.File("config")});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, HasSubstr("line 1"));
}

TEST_F(AuthTest, TokensThatGemmctlMakesAreTaken) {
  const std::string file = secured_.dir().File("ci.token");
  const auto ctl = [&](std::vector<std::string> args) {
    args.insert(args.begin(), GEMMCTL_PATH);
    return RunToEnd(args);
  };
  const Finished made = ctl({"token", "--name", "ci", "--tenant", "batch", "--role", "observer",
                             "--expires", "1h", "-o", file});
  ASSERT_EQ(made.status, 0) << made.err;
  PutTokens(TokenLines() + made.out);
  const Finished shown =
      ctl({"log", "--json", "--server", secured_.by_token(), "--token-file", file});
  EXPECT_EQ(shown.status, 0) << shown.err;
  const Finished refused =
      ctl({"log", "--level", "debug", "--server", secured_.by_token(), "--token-file", file});
  EXPECT_EQ(refused.status, 5);
  EXPECT_THAT(refused.err, HasSubstr("ROLE"));
  const Finished nobody = ctl({"log", "--server", secured_.by_token()});
  EXPECT_EQ(nobody.status, 5);
  EXPECT_THAT(nobody.err, HasSubstr("--token-file"));
  // A second one of the name must not take the place of the first.
  EXPECT_EQ(ctl({"token", "--name", "ci", "-o", file}).status, 3);
}

TEST_F(AuthTest, AnOperatorChangesTheLogAndEndsASession) {
  Client batch = Must(Client::Connect(secured_.by_token(), secured_.WithToken("batch")));
  const client::Session session = Must(batch.OpenSession());
  const std::string token = secured_.WithToken("admin").token_file;
  const auto ctl = [&](std::vector<std::string> args) {
    args.insert(args.begin(), GEMMCTL_PATH);
    args.insert(args.end(), {"--server", secured_.by_token(), "--token-file", token});
    return RunToEnd(args);
  };
  const Finished set = ctl({"log", "--level", "debug", "--sample", "3", "--json"});
  EXPECT_EQ(set.status, 0) << set.err;
  EXPECT_EQ(nlohmann::json::parse(ctl({"log", "--json"}).out),
            (nlohmann::json{{"level", "debug"}, {"sample_calls", 3}}));
  EXPECT_EQ(ctl({"end", session.name()}).status, 0);
  EXPECT_EQ(Must(batch.ListSessions()).size(), 0);
  EXPECT_EQ(ctl({"end", session.name()}).status, 5);
}

}  // namespace
}  // namespace gemmd::e2e
