// Every RPC that the proto files declare, tried by nobody and by each role: let through or refused
// as the table here says. An RPC of a service without a line in it fails the test.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <map>
#include <utility>

#include "gemmd/v1/admin_service.pb.h"
#include "gemmd/v1/session_service.pb.h"
#include "tests/e2e/declared_rpcs.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/generic_call.h"
#include "tests/e2e/secured.h"

namespace gemmd::e2e {
namespace {

// Who is let through: letters of "user", "observer", "admin".
constexpr char kAll[] = "uoa";
constexpr char kWork[] = "ua";
constexpr char kObserve[] = "oa";
constexpr char kChange[] = "a";

// By service, but for a few.
constexpr std::pair<const char*, const char*> kAllowed[] = {
    {"ComputeService/Explain", kAll},  {"SessionService/ListSessions", kAll},
    {"AdminService/GetLog", kObserve}, {"AdminService/Trace", kObserve},
    {"AdminService/", kChange},        {"ArmedService/", kWork},
    {"BufferService/", kWork},         {"ComputeService/", kWork},
    {"DeviceService/", kAll},          {"SessionService/", kWork},
};

// Of every RPC that is declared; nobody, where no line above holds.
const std::map<std::string, std::string>& Table() {
  static const auto* const table = [] {
    auto* made = new std::map<std::string, std::string>;
    for (const DeclaredRpc& rpc : DeclaredRpcs()) {
      const auto* const line =
          std::find_if(std::begin(kAllowed), std::end(kAllowed),
                       [&](const auto& line) { return rpc.name.starts_with(line.first); });
      made->emplace(rpc.name, line == std::end(kAllowed) ? "" : line->second);
    }
    return made;
  }();
  return *table;
}

// Empty, so that what is let through does nothing; but a trace must not take its default 5 s.
std::string RequestOf(const std::string& rpc) {
  if (rpc != "AdminService/Trace") return "";
  v1::TraceRequest request;
  request.mutable_duration()->set_nanos(1000000);
  return request.SerializeAsString();
}

bool IsRefusal(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
}

class RoleTest : public testing::Test {
 protected:
  static std::shared_ptr<grpc::Channel> Plain(const std::string& target) {
    return grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
  }
  static Metadata Token(const std::string& name) {
    return {{"authorization", "Bearer " + TokenOf(name)}};
  }
  // Of one caller, on each RPC.
  void ExpectTable(const std::shared_ptr<grpc::Channel>& channel, const std::string& role,
                   const Metadata& metadata) {
    for (const auto& [rpc, allowed] : Table()) {
      const Answered answered = CallByName(channel, "/gemmd.v1." + rpc, RequestOf(rpc), metadata);
      const std::string what = rpc + " by " + role + ": " + answered.status.error_message();
      // gRPC's own, for a method that nobody serves, says nothing.
      EXPECT_FALSE(answered.status.error_code() == grpc::StatusCode::UNIMPLEMENTED &&
                   answered.status.error_message().empty())
          << what;
      if (allowed.find(role[0]) != allowed.npos) {
        EXPECT_FALSE(IsRefusal(answered.status)) << what;
        continue;
      }
      EXPECT_EQ(answered.status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << what;
      EXPECT_EQ(answered.reason, "ROLE") << what;
      EXPECT_TRUE(answered.responses.empty()) << what;
    }
  }

  Secured secured_;
};

TEST_F(RoleTest, EveryServiceHasALineInTheTable) {
  EXPECT_GE(Table().size(), 38);
  for (const auto& [rpc, allowed] : Table()) EXPECT_NE(allowed, "") << rpc;
}

TEST_F(RoleTest, EachRoleByTokenIsLetThroughOrRefused) {
  const auto channel = Plain(secured_.by_token());
  for (const char* role : {"user", "observer", "admin"}) {
    ExpectTable(channel, role, Token(role));
  }
}

TEST_F(RoleTest, EachRoleByCertificateIsLetThroughOrRefused) {
  for (const char* role : {"user", "observer", "admin"}) {
    ExpectTable(grpc::CreateChannel(secured_.by_certificate(),
                                    secured_.RawTls(secured_.CallerIdentity(role))),
                role, {});
  }
}

TEST_F(RoleTest, NobodyIsRefusedEverywhere) {
  const auto tls = grpc::CreateChannel(secured_.by_either(), secured_.RawTls());
  for (const auto& channel : {Plain(secured_.by_token()), tls}) {
    for (const auto& [rpc, allowed] : Table()) {
      const Answered answered = CallByName(channel, "/gemmd.v1." + rpc, RequestOf(rpc));
      EXPECT_EQ(answered.status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
          << rpc << ": " << answered.status.error_message();
      EXPECT_EQ(answered.reason, "NO_CREDENTIALS") << rpc;
      EXPECT_TRUE(answered.responses.empty()) << rpc;
    }
  }
}

TEST_F(RoleTest, HealthIsForAllAndWhatLooksIntoTheServerForNobody) {
  const auto channel = Plain(secured_.by_token());
  EXPECT_TRUE(CallByName(channel, "/grpc.health.v1.Health/Check", "").status.ok());
  for (const char* method : {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                             "/grpc.channelz.v1.Channelz/GetServers"}) {
    for (const Metadata& metadata : {Metadata(), Token("user"), Token("admin")}) {
      EXPECT_EQ(CallByName(channel, method, "", metadata).status.error_code(),
                grpc::StatusCode::UNIMPLEMENTED)
          << method;
    }
  }
}

TEST_F(RoleTest, WhatIsRefusedHasDoneNothing) {
  const auto channel = Plain(secured_.by_token());
  for (const auto& [rpc, allowed] : Table()) {
    CallByName(channel, "/gemmd.v1." + rpc, RequestOf(rpc));
    if (allowed == kWork) {
      CallByName(channel, "/gemmd.v1." + rpc, RequestOf(rpc), Token("observer"));
    }
  }
  EXPECT_EQ(HoldingsOf(secured_.daemon()), Holdings());
  const double refused = secured_.daemon().Metric("gemmd_auth_refusals_total");
  EXPECT_GE(refused, Table().size());
  EXPECT_EQ(secured_.daemon().Metric("gemmd_auth_refusals_total", "reason=\"NO_CREDENTIALS\""),
            Table().size());
}

// Of callers whom no credential names.
TEST(ListenerRoleTest, IsTheListenersWhereNothingIsAskedFor) {
  Daemon daemon({.config = "listeners { address: \"127.0.0.1:0\" role: ROLE_OBSERVER }"});
  client::Client observer = Must(client::Client::Connect(daemon.listener(0)));
  EXPECT_TRUE(observer.GetLog().ok());
  EXPECT_EQ(client::ReasonOf(observer.OpenSession().status()), "ROLE");
  EXPECT_EQ(client::ReasonOf(observer.SetLog({.level = "debug"}).status()), "ROLE");
  client::Client user = Must(client::Client::Connect(daemon.tcp_target()));
  EXPECT_TRUE(user.OpenSession().ok());
  EXPECT_EQ(client::ReasonOf(user.GetLog().status()), "ROLE");
}

TEST(ListenerRoleTest, AnObserverSeesEveryTenantsSessionsAndAUserItsOwn) {
  Secured secured;
  const auto connect = [&](const char* name) {
    return Must(client::Client::Connect(secured.by_token(), secured.WithToken(name)));
  };
  client::Client user = connect("user"), batch = connect("batch"), observer = connect("observer");
  const client::Session one = Must(user.OpenSession({.label = "users"}));
  const client::Session two = Must(batch.OpenSession({.label = "batches"}));
  EXPECT_EQ(Must(user.ListSessions()).size(), 1);
  EXPECT_EQ(Must(batch.ListSessions()).size(), 1);
  EXPECT_EQ(Must(observer.ListSessions()).size(), 2);
  EXPECT_EQ(Must(connect("admin").ListSessions()).size(), 2);
}

TEST(ListenerRoleTest, AnAdminEndsAnotherTenantsSession) {
  Secured secured;
  client::Client batch =
      Must(client::Client::Connect(secured.by_token(), secured.WithToken("batch")));
  client::Session session = Must(batch.OpenSession());
  const client::Buffer buffer = MakeBuffer(session, {64, 64});
  client::Client admin =
      Must(client::Client::Connect(secured.by_token(), secured.WithToken("admin")));
  EXPECT_EQ(admin.EndSession(session.name()), absl::OkStatus());
  EXPECT_TRUE(WaitUntil([&] { return HoldingsOf(secured.daemon()).buffer_bytes == 0; }));
  EXPECT_EQ(client::ReasonOf(session.KeepAlive().status()), "SESSION_GONE");
  EXPECT_EQ(admin.EndSession(session.name()).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace gemmd::e2e
