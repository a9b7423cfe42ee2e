// Bytes that are no message, to every RPC that the proto files declare: refused with a reason and a
// request id, counted and logged, like any other bad input.

#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/compute_service.pb.h"
#include "tests/e2e/declared_rpcs.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/generic_call.h"
#include "tests/e2e/secured.h"
#include "tests/e2e/wire.h"

namespace gemmd::e2e {
namespace {

using testing::HasSubstr;

constexpr char kGarbage[] = "\xff\xff\xff";

std::string TrailingOf(const Answered& answered, const std::string& key) {
  for (const auto& [name, value] : answered.trailing) {
    if (name == key) return value;
  }
  return "";
}

class NotAMessageTest : public testing::Test {
 protected:
  Answered Call(const std::string& rpc, const std::string& request) {
    return CallByName(channel_, "/gemmd.v1." + rpc, request);
  }
  void ExpectRefused(const DeclaredRpc& rpc, const Answered& answered) {
    EXPECT_EQ(answered.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << rpc.name << ": " << answered.status.error_message();
    EXPECT_NE(answered.status.error_message(), "") << rpc.name;
    EXPECT_EQ(answered.reason, "INVALID") << rpc.name;
    EXPECT_NE(TrailingOf(answered, "gemmd-request-id"), "") << rpc.name;
    EXPECT_TRUE(answered.responses.empty()) << rpc.name;
  }
  // Of calls of the method that ended so.
  double Counted(const DeclaredRpc& rpc) {
    double count = 0;
    for (const auto& [series, value] : daemon_.Metrics()) {
      if (series.find("gemmd_requests_total{") == 0 &&
          series.find("method=\"" + rpc.method() + "\"") != series.npos &&
          series.find("code=\"INVALID_ARGUMENT\"") != series.npos) {
        count += value;
      }
    }
    return count;
  }

  Daemon daemon_{{.config = "listeners { address: \"127.0.0.1:0\" role: ROLE_ADMIN }"}};
  std::shared_ptr<grpc::Channel> channel_ =
      grpc::CreateChannel(daemon_.listener(0), grpc::InsecureChannelCredentials());
};

TEST_F(NotAMessageTest, IsRefusedCountedAndLoggedAtEveryRpc) {
  const std::vector<DeclaredRpc> rpcs = DeclaredRpcs();
  EXPECT_GE(rpcs.size(), 30u);
  for (const DeclaredRpc& rpc : rpcs) {
    ExpectRefused(rpc, Call(rpc.name, kGarbage));
    EXPECT_TRUE(WaitUntil([&] { return Counted(rpc) == 1; })) << rpc.name;
    const std::string line = "INFO call_failed method=\"" + rpc.method() + "\" ";
    EXPECT_TRUE(WaitUntil([&] { return daemon_.log().find(line) != std::string::npos; }))
        << rpc.name;
  }
  EXPECT_EQ(HoldingsOf(daemon_), Holdings());
}

TEST_F(NotAMessageTest, AStringThatIsNotUtf8IsRefusedAtEveryRpcThatHasOne) {
  int tried = 0;
  for (const DeclaredRpc& rpc : DeclaredRpcs()) {
    if (rpc.not_utf8.empty()) continue;
    const Answered answered = Call(rpc.name, rpc.not_utf8);
    ExpectRefused(rpc, answered);
    EXPECT_THAT(answered.status.error_message(), HasSubstr("UTF-8")) << rpc.name;
    ++tried;
  }
  EXPECT_GE(tried, 10);
}

// A stream's later messages, which gRPC by itself would take for its end.
TEST_F(NotAMessageTest, EndsAQueueThatHasAcceptedBatches) {
  Wire wire(daemon_.tcp_target());
  const std::string session = wire.OpenSession();
  v1::QueueRequest open;
  open.mutable_open()->set_session_id(session);
  const Answered answered =
      CallByName(channel_, "/gemmd.v1.ComputeService/Queue",
                 std::vector<std::string>{open.SerializeAsString(), kGarbage});
  EXPECT_EQ(answered.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(answered.reason, "INVALID");
  EXPECT_EQ(answered.responses.size(), 1u);
}

TEST_F(NotAMessageTest, NoMessageAtAllIsRefusedToo) {
  for (const DeclaredRpc& rpc : DeclaredRpcs()) {
    if (rpc.name == "ComputeService/Queue") continue;        // a stream of no messages is one
    const auto refused = rpc.name == "BufferService/Upload"  // a stream, which wants chunks
                             ? grpc::StatusCode::INVALID_ARGUMENT
                             : grpc::StatusCode::CANCELLED;
    const Answered answered =
        CallByName(channel_, "/gemmd.v1." + rpc.name, std::vector<std::string>());
    EXPECT_EQ(answered.status.error_code(), refused)
        << rpc.name << ": " << answered.status.error_message();
  }
}

// A call that is cancelled before its message came has none, and its message is not at fault.
TEST_F(NotAMessageTest, ACallThatIsCancelledIsCountedAsThat) {
  grpc::GenericStub stub(channel_);
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::Status status;
    void* tag = nullptr;
    bool ok = false;
    const auto call = stub.PrepareCall(&context, "/gemmd.v1.SessionService/ListSessions", &queue);
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    context.TryCancel();
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
  }
  const auto counted = [this](const char* code) {
    return daemon_.Metric("gemmd_requests_total",
                          absl::StrCat("code=\"", code, "\",method=\"ListSessions\""));
  };
  EXPECT_TRUE(WaitUntil([&] { return counted("CANCELLED") > 0; }));
  EXPECT_EQ(counted("INVALID_ARGUMENT"), 0);
}

// Who calls is asked first: nobody learns what a message would have to be.
TEST(NotAMessageRoleTest, SaysNothingToWhoMayNotCall) {
  Secured secured;
  const auto channel = grpc::CreateChannel(secured.by_token(), grpc::InsecureChannelCredentials());
  for (const DeclaredRpc& rpc : DeclaredRpcs()) {
    const Answered answered = CallByName(channel, "/gemmd.v1." + rpc.name, kGarbage);
    EXPECT_EQ(answered.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << rpc.name;
    EXPECT_EQ(answered.reason, "NO_CREDENTIALS") << rpc.name;
  }
}

}  // namespace
}  // namespace gemmd::e2e
