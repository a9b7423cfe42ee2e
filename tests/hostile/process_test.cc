// What the machine may do to the process: closed descriptors, little address space, and a burst
// whose memory others want back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "tests/e2e/fixture.h"
#include "tests/e2e/wire.h"

namespace gemmd::hostile {
namespace {

using namespace gemmd::e2e;  // NOLINT: the tests' own helpers
using testing::AllOf;
using testing::HasSubstr;

// gemmd, after `setup` of a shell.
std::vector<std::string> After(const std::string& setup, const TempDir& dir) {
  WriteFile(dir.File("config"),
            absl::StrCat("devices { name: \"cpu:0\" threads: 1 memory_bytes: 1073741824 }\n",
                         "listeners { address: \"unix:", dir.File("gemmd.sock"), "\" }\n"));
  return {"/bin/sh",
          "-c",
          setup,
          "sh",
          FindProgram(GEMMD_PATH),
          "--config",
          dir.File("config"),
          "--ready-file",
          dir.File("ready")};
}

TEST(ClosedDescriptorsTest, AreTakenByDevNullAndNotByAConnection) {
  TempDir dir;
  Process gemmd = Process::Start(After("exec \"$@\" <&- >&- 2>&-", dir), dir.path());
  ASSERT_TRUE(WaitUntil([&] { return !ReadFile(dir.File("ready")).empty() || !gemmd.running(); }));
  client::Client client = Must(client::Client::Connect("unix:" + dir.File("gemmd.sock")));
  EXPECT_TRUE(client.OpenSession().ok());
  for (int fd = 0; fd <= 2; ++fd) {
    std::error_code error;
    const auto target =
        std::filesystem::read_symlink(absl::StrCat("/proc/", gemmd.pid(), "/fd/", fd), error);
    EXPECT_EQ(target, "/dev/null") << fd << ": " << error.message();
  }
  gemmd.Signal(SIGTERM);
  EXPECT_EQ(gemmd.Wait(absl::Seconds(30)), 0);
}

TEST(AddressSpaceTest, TooLittleIsSaidInOneLine) {
  for (const char* kib : {"204800", "716800"}) {
    TempDir dir;
    Process gemmd =
        Process::Start(After(absl::StrCat("ulimit -v ", kib, "; exec \"$@\""), dir), dir.path());
    EXPECT_EQ(gemmd.Wait(absl::Seconds(30)), 1) << kib;
    const std::string text = gemmd.err();
    EXPECT_THAT(text, AllOf(HasSubstr("gemmd: "), HasSubstr("address space"), HasSubstr("raise")));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  }
}

// gRPC would abort without the one, and its threads end the process without the other.
TEST(RoomTest, TooFewDescriptorsAndTooSmallAStackAreSaid) {
  for (const auto& [limit, words] :
       {std::pair("ulimit -s 64", "the stack is limited to 65536 bytes"),
        {"ulimit -n 12", "the descriptors are limited to 12"}}) {
    TempDir dir;
    Process gemmd = Process::Start(After(absl::StrCat(limit, "; exec \"$@\""), dir), dir.path());
    EXPECT_EQ(gemmd.Wait(absl::Seconds(30)), 1) << limit;
    EXPECT_THAT(gemmd.err(), AllOf(HasSubstr(words), HasSubstr("raise it")));
  }
}

// A program of one op, 8 times at once on each of 8 connections: each is served by another thread,
// and so from another arena of malloc's.
void RunOnManyConnections(const std::string& target, const std::string& session, const v1::Op& op) {
  constexpr int kConnections = 8, kRuns = 8;
  v1::ExecuteRequest request;
  request.set_session_id(session);
  *request.add_ops() = op;
  struct Run {
    grpc::ClientContext context;
    v1::ExecuteResponse response;
  };
  std::vector<std::unique_ptr<v1::ComputeService::Stub>> stubs;
  std::vector<std::unique_ptr<Run>> runs;
  absl::BlockingCounter left(kConnections * kRuns);
  std::atomic<int> failed = 0;
  grpc::ChannelArguments its_own;
  its_own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  for (int i = 0; i < kConnections * kRuns; ++i) {
    if (i % kRuns == 0) {
      stubs.push_back(v1::ComputeService::NewStub(
          grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), its_own)));
    }
    Run& run = *runs.emplace_back(std::make_unique<Run>());
    stubs.back()->async()->Execute(&run.context, &request, &run.response,
                                   [&](const grpc::Status& status) {
                                     failed += status.ok() ? 0 : 1;
                                     left.DecrementCount();
                                   });
  }
  left.Wait();
  EXPECT_EQ(failed, 0);
}

// Plans with data, and answers that are large: malloc keeps the blocks of either.
TEST(BurstTest, MemoryGoesBackOnceItIsOver) {
  constexpr int64_t kBytes = 3 << 20;
  Daemon daemon;
  Wire wire(daemon.tcp_target());
  const std::string session = wire.OpenSession();
  const std::string buffer = wire.CreateBuffer(session, kBytes);
  const v1::Tensor whole = View(buffer, {kBytes}, v1::DTYPE_I8);
  const auto resident = [&] { return UseOf(daemon.process().pid()).resident_bytes; };
  ASSERT_TRUE(wire.Execute(session, {FillOp(whole, 1)}).ok());
  const int64_t start = resident();

  v1::CreatePlanRequest create;
  create.set_session_id(session);
  *create.add_ops() = WriteOp(whole, std::string(kBytes, 'x'));
  std::vector<std::string> plans;
  for (int i = 0; i < 80; ++i) {
    grpc::ClientContext context;
    v1::Plan plan;
    ASSERT_TRUE(wire.compute().CreatePlan(&context, create, &plan).ok());
    plans.push_back(plan.plan_id());
  }
  RunOnManyConnections(daemon.tcp_target(), session, ReadOp(whole));
  for (const std::string& plan : plans) {
    grpc::ClientContext context;
    v1::DeletePlanRequest request;
    request.set_session_id(session);
    request.set_plan_id(plan);
    v1::DeletePlanResponse response;
    ASSERT_TRUE(wire.compute().DeletePlan(&context, request, &response).ok());
  }
  EXPECT_GT(resident() - start, 64 << 20);
  EXPECT_EQ(wire.CloseSession(session).error_code(), grpc::StatusCode::OK);
  EXPECT_TRUE(WaitUntil([&] { return resident() - start < 32 << 20; }, absl::Seconds(30)))
      << start << " bytes at first, " << resident() << " after";
  EXPECT_TRUE(WaitUntil([&] { return daemon.Metric("gemmd_memory_returned_bytes_total") > 0; }));
}

}  // namespace
}  // namespace gemmd::hostile
