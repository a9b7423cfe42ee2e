// What the log says of callers: each call that matters in one line, nothing that a caller made up
// as if the daemon had said it, and no secret at any level.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gemmd/v1/admin_service.pb.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/device_service.pb.h"
#include "gemmd/v1/session_service.pb.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/generic_call.h"
#include "tests/e2e/secured.h"

namespace gemmd::e2e {
namespace {

using client::Client;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJsonDebug[] = "log { format: FORMAT_JSON level: LEVEL_DEBUG }\n";

// What a caller would write to be taken for the daemon: in JSON, in text, and to a terminal.
const char* const kForgeries[] = {
    "x\n{\"time\":\"2026-01-01T00:00:00Z\",\"level\":\"INFO\",\"event\":\"forged\"}",
    "x\r\n2026-01-01T00:00:00.000000Z INFO forged decision=allowed",
    "\",\"event\":\"forged\",\"x\":\"",
    "x\\\",\\\"event\\\":\\\"forged\\\"",
    "\x1b[2K\x1b[1A\x1b[32mforged\x1b[0m",
    "\xc2\x9b"
    "2Kforged\x7f\x08\x08",
    "\xe2\x80\xa8"
    "forged\xe2\x80\xae",
    "\xff\xfe forged \xc0\xaf",
};

// The lines of the log, each a JSON object with its time, level and event.
std::vector<json> Lines(const std::string& log) {
  std::vector<json> lines;
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);) {
    json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool is_line = parsed.is_object() && parsed.contains("time") &&
                         parsed.contains("level") && parsed.contains("event");
    EXPECT_TRUE(is_line) << line;
    if (is_line) lines.push_back(std::move(parsed));
  }
  return lines;
}

void ExpectNothingForged(const std::string& log) {
  for (const json& line : Lines(log)) EXPECT_NE(line["event"], "forged") << line;
  for (const unsigned char c : log) {
    EXPECT_TRUE(c == '\n' || c >= 0x20) << "byte " << int{c} << " in the log";
    if (c < 0x20 && c != '\n') break;
  }
  for (const char* active : {"\x7f", "\xc2\x9b", "\xe2\x80\xa8", "\xe2\x80\xae"}) {
    EXPECT_THAT(log, Not(HasSubstr(active)));
  }
}

TEST(AuthLogTest, NothingACallerSendsForgesALine) {
  std::string tokens = TokenLines();
  // A token's name is one word of the operator's file, of any visible characters.
  const std::string odd = "a\",\"event\":\"forged\",\"x\":\"";
  tokens += TokenLine(TokenOf("odd"), odd, "default", "admin");
  Secured secured({.config = kJsonDebug, .tokens = tokens});
  const Metadata user = {{"authorization", "Bearer " + TokenOf("user")}};

  for (const std::string forgery : kForgeries) {
    grpc::ChannelArguments arguments;
    std::string agent = forgery;  // header values are visible ASCII; gRPC itself takes no other
    for (char& c : agent) c = c < 0x20 || c > 0x7e ? '.' : c;
    arguments.SetUserAgentPrefix(agent);
    const auto channel = grpc::CreateCustomChannel(secured.by_token(),
                                                   grpc::InsecureChannelCredentials(), arguments);
    const auto call = [&](const char* method, const google::protobuf::Message& request,
                          Metadata metadata) {
      metadata.insert(metadata.end(), {{"x-request-id", agent},
                                       {"traceparent", agent},
                                       {"tracestate", agent},
                                       {"forged-bin", forgery}});
      return CallByName(channel, method, request.SerializeAsString(), metadata);
    };
    v1::OpenSessionRequest open;
    open.set_label(agent);
    open.set_device(agent);
    call("/gemmd.v1.SessionService/OpenSession", open, user);
    open.set_device("");
    call("/gemmd.v1.SessionService/OpenSession", open, user);
    v1::FindBufferRequest find;
    find.set_session_id(forgery);
    find.set_name(agent);
    call("/gemmd.v1.BufferService/FindBuffer", find, user);
    v1::EndSessionRequest end;
    end.set_name(agent);
    call("/gemmd.v1.AdminService/EndSession", end,
         {{"authorization", "Bearer " + TokenOf("admin")}});
    v1::SetLogRequest set;
    set.set_level(agent);
    call("/gemmd.v1.AdminService/SetLog", set, {{"authorization", "Bearer " + TokenOf("odd")}});
    call("/gemmd.v1.AdminService/SetLog", set, {{"authorization", "Bearer " + agent}});
    // Bytes that are no message, and raw strings that protobuf's classes would not write.
    for (const char* method :
         {"/gemmd.v1.SessionService/OpenSession", "/gemmd.v1.AdminService/EndSession",
          "/gemmd.v1.BufferService/UnpublishBuffer"}) {
      // Its first two fields, as strings or bytes.
      const std::string length(1, static_cast<char>(forgery.size()));
      const std::string raw = absl::StrCat("\x0a", length, forgery, "\x12", length, forgery);
      CallByName(channel, method, raw, {{"authorization", "Bearer " + TokenOf("admin")}});
      CallByName(channel, method, forgery, user);
    }
  }
  // In a certificate of the clients' authority.
  for (const std::string forgery : kForgeries) {
    CallByName(grpc::CreateChannel(
                   secured.by_certificate(),
                   secured.RawTls(secured.clients().Issue({.common_name = forgery.substr(0, 60)}))),
               "/gemmd.v1.DeviceService/GetServerInfo", "");
  }
  EXPECT_EQ(secured.daemon().Stop(), 0);
  ExpectNothingForged(secured.daemon().log());
  EXPECT_THAT(secured.daemon().log(), HasSubstr("forged"));  // it got that far, as data
}

// gRPC and OpenSSL have things to say about a connection, too.
TEST(AuthLogTest, BrokenHandshakesAreLinesOfTheLogOrNone) {
  Secured secured({.config = kJsonDebug});
  Authority other("others\n{\"event\":\"forged\"}");
  for (const Identity& identity : {Identity(), other.Issue({.common_name = "forged"})}) {
    EXPECT_FALSE(CallByName(grpc::CreateChannel(secured.by_certificate(), secured.RawTls(identity)),
                            "/gemmd.v1.DeviceService/GetServerInfo", "")
                     .status.ok());
  }
  EXPECT_FALSE(
      CallByName(grpc::CreateChannel(secured.by_certificate(), grpc::InsecureChannelCredentials()),
                 "/gemmd.v1.DeviceService/GetServerInfo", "")
          .status.ok());
  EXPECT_EQ(secured.daemon().Stop(), 0);
  ExpectNothingForged(secured.daemon().log());
}

TEST(AuthLogTest, HandshakesThatFailDoNotFillIt) {
  Secured secured({.config = kJsonDebug});
  constexpr int kHandshakes = 300;
  const auto credentials = secured.RawTls();
  for (int i = 0; i < kHandshakes; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    EXPECT_FALSE(
        CallByName(grpc::CreateCustomChannel(secured.by_certificate(), credentials, arguments),
                   "/gemmd.v1.DeviceService/GetServerInfo", "")
            .status.ok());
  }
  EXPECT_EQ(secured.daemon().Stop(), 0);
  std::map<std::string, int> by_second;
  for (const json& line : Lines(secured.daemon().log())) {
    if (line["event"] == "grpc") ++by_second[line["time"].get<std::string>().substr(0, 19)];
  }
  EXPECT_FALSE(by_second.empty());
  int lines = 0;
  for (const auto& [second, some] : by_second) lines += some;
  // The first may have been counted in the second before.
  EXPECT_LE(lines, 20 * (by_second.size() + 1));
}

TEST(AuthLogTest, RefusalsAndAdminCallsAreThere) {
  Secured secured({.config = "log { format: FORMAT_JSON level: LEVEL_WARNING }"});
  Client admin = Must(Client::Connect(secured.by_token(), secured.WithToken("admin")));
  Client user = Must(Client::Connect(secured.by_token(), secured.WithToken("user")));
  EXPECT_TRUE(admin.GetLog().ok());
  EXPECT_FALSE(admin.EndSession("s-99").ok());
  EXPECT_FALSE(user.GetLog().ok());
  Client nobody = Must(Client::Connect(secured.by_token()));
  EXPECT_FALSE(nobody.GetServerInfo().ok());
  EXPECT_EQ(secured.daemon().Stop(), 0);  // and its last line is written
  std::map<std::string, json> audits;
  for (const json& line : Lines(secured.daemon().log())) {
    if (line["event"] != "audit") continue;
    audits[absl::StrCat(line["decision"].get<std::string>(), " ", line["method"].get<std::string>(),
                        " ", line["principal"].get<std::string>())] = line;
  }
  for (const char* wanted : {"allowed GetLog token:admin", "allowed EndSession token:admin",
                             "refused GetLog token:user", "refused GetServerInfo "}) {
    EXPECT_TRUE(audits.contains(wanted)) << wanted << "\n" << secured.daemon().log();
  }
  EXPECT_EQ(audits["allowed EndSession token:admin"]["code"], "NOT_FOUND");
  EXPECT_EQ(audits["refused GetLog token:user"]["reason"], "ROLE");
  EXPECT_EQ(audits["refused GetLog token:user"]["tenant"], "default");
  EXPECT_EQ(audits["refused GetLog token:user"]["role"], "user");
  EXPECT_EQ(audits["refused GetServerInfo "]["reason"], "NO_CREDENTIALS");
  EXPECT_THAT(audits["refused GetServerInfo "]["peer"].get<std::string>(), HasSubstr("127.0.0.1"));
}

std::string RandomHex(size_t bytes) {
  static std::random_device random;
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(random()));
  return absl::BytesToHexString(text);
}

// No piece of `secret`, in hex as it is or would be shown, is in the log.
void ExpectNoPiece(const std::string& log, const std::string& secret, const char* what) {
  constexpr size_t kPiece = 10;
  for (size_t at = 0; at + kPiece <= secret.size(); ++at) {
    ASSERT_EQ(log.find(secret.substr(at, kPiece)), std::string::npos) << what;
  }
}

TEST(AuthLogTest, NoSecretIsInItAtAnyLevel) {
  const std::string good = RandomHex(32), bad = RandomHex(32);
  Secured secured({.config = "log { level: LEVEL_DEBUG }",
                   .tokens = TokenLines() + TokenLine(good, "good", "default", "admin")});
  const std::string file = secured.dir().File("good.token");
  WriteFile(file, good);
  Client client = Must(Client::Connect(secured.by_token(), {.token_file = file}));
  client::Session session = Must(client.OpenSession({.label = "shown"}));
  client::Buffer buffer = MakeBuffer(session, {8, 8});
  client::OpList ops;
  ops.Add(client::Fill{buffer.tensor(), 1}).Add(client::Read{buffer.tensor()});
  EXPECT_TRUE(session.Execute(ops).ok());
  const client::Plan plan = Must(session.CreatePlan(ops));
  EXPECT_TRUE(session.Publish(buffer, "weights").ok());
  EXPECT_FALSE(session.Publish(buffer, "weights").ok());
  EXPECT_FALSE(client.AttachSession(*client::Handle::FromHex(std::string(32, '7'))).ok());
  WriteFile(file + ".bad", bad);
  Client stranger = Must(Client::Connect(secured.by_token(), {.token_file = file + ".bad"}));
  EXPECT_FALSE(stranger.OpenSession().ok());
  const std::string id = session.id().ToHex();
  const std::string bytes(session.id().bytes());
  EXPECT_TRUE(session.Close().ok());
  EXPECT_FALSE(session.KeepAlive().ok());
  EXPECT_EQ(secured.daemon().Stop(), 0);

  const std::string log = secured.daemon().log();
  EXPECT_THAT(log, HasSubstr("OpenSession"));  // DEBUG logs every call
  EXPECT_THAT(log, HasSubstr("BAD_TOKEN"));
  ExpectNoPiece(log, good, "a token");
  ExpectNoPiece(log, bad, "a token that is not good");
  ExpectNoPiece(log, id, "a session's id");
  ExpectNoPiece(log, absl::AsciiStrToUpper(id), "a session's id");
  EXPECT_EQ(log.find(bytes), std::string::npos);
  EXPECT_EQ(log.find(absl::Base64Escape(bytes).substr(0, 12)), std::string::npos);
  ExpectNoPiece(log, buffer.id().ToHex(), "a buffer's id");
  ExpectNoPiece(log, plan.id().ToHex(), "a plan's id");
}

}  // namespace
}  // namespace gemmd::e2e
