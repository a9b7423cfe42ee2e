// Who calls at a Unix socket: the kernel's word for the user id at its other end. Other users'
// calls need root, which CI is; elsewhere they are skipped.

#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/device_service.pb.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using ::testing::HasSubstr;

// Abstract sockets: any user may connect, so that the kernel's word alone decides.
std::string SocketName(const char* what) {
  static std::atomic<int> count = 0;
  return absl::StrCat("unix-abstract:gemmd-e2e-", getpid(), "-", what, count++);
}

// gemmctl as another user; "" in `user`: as this one.
Finished CtlAs(const std::string& user, std::vector<std::string> args) {
  args.insert(args.begin(), FindProgram(GEMMCTL_PATH));
  if (!user.empty()) {
    args.insert(args.begin(),
                {"/usr/bin/setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups"});
  }
  return RunToEnd(args);
}

std::string TenantSeenBy(const std::string& user, const std::string& target) {
  const Finished done = CtlAs(user, {"info", "--json", "--server", target});
  if (done.status != 0) return done.err;
  return nlohmann::json::parse(done.out)["tenant"];
}

class AuthUnixTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "other users' calls need root";
    const Finished done = CtlAs("65533", {"version"});
    if (done.status != 0) GTEST_SKIP() << "user 65533 cannot run gemmctl here: " << done.err;
  }

  // Where nothing is asked for, and where the user is.
  const std::string open_ = SocketName("open");
  const std::string asked_ = SocketName("asked");
  Daemon daemon_{{.config = absl::StrCat(
                      "tenants { name: \"default\" } tenants { name: \"batch\" }\n",
                      "listeners { address: \"", open_, "\" tenant: \"batch\" }\n",
                      "listeners { address: \"", asked_, "\" credentials: CREDENTIAL_UNIX_PEER }\n",
                      "auth { unix_peers { uid: 65533 tenant: \"batch\" role: ROLE_OBSERVER }\n",
                      "       unix_peers { uid: 65531 tenant: \"batch\" } }\n")}};
};

TEST_F(AuthUnixTest, RootAndTheDaemonsUserAreAdminsOfTheListenersTenant) {
  for (const std::string& target : {open_, asked_}) {
    EXPECT_EQ(CtlAs("", {"log", "--level", "info", "--server", target}).status, 0) << target;
  }
  EXPECT_EQ(TenantSeenBy("", open_), "batch");
  EXPECT_EQ(TenantSeenBy("", asked_), "default");
}

TEST_F(AuthUnixTest, ARuleSaysTenantAndRole) {
  EXPECT_EQ(TenantSeenBy("65533", asked_), "batch");
  EXPECT_EQ(CtlAs("65533", {"log", "--server", asked_}).status, 0);
  const Finished refused = CtlAs("65533", {"log", "--level", "debug", "--server", asked_});
  EXPECT_EQ(refused.status, 5);
  EXPECT_THAT(refused.err, HasSubstr("ROLE"));
  EXPECT_EQ(TenantSeenBy("65531", asked_), "batch");
  EXPECT_THAT(CtlAs("65531", {"log", "--server", asked_}).err, HasSubstr("ROLE"));
}

TEST_F(AuthUnixTest, WhoHasNoRuleIsRefusedWhereOneIsAskedForAndAUserElsewhere) {
  const Finished refused = CtlAs("65532", {"info", "--server", asked_});
  EXPECT_EQ(refused.status, 5);
  EXPECT_THAT(refused.err, HasSubstr("UNKNOWN_PEER"));
  EXPECT_THAT(refused.err, HasSubstr("uid=65532"));
  EXPECT_EQ(TenantSeenBy("65532", open_), "batch");
  EXPECT_THAT(CtlAs("65532", {"log", "--server", open_}).err, HasSubstr("ROLE"));
}

TEST_F(AuthUnixTest, RulesChangeWithAReload) {
  daemon_.Reload(
      absl::StrCat("tenants { name: \"default\" } tenants { name: \"batch\" }\n",
                   "listeners { address: \"", open_, "\" tenant: \"batch\" }\n",
                   "listeners { address: \"", asked_, "\" credentials: CREDENTIAL_UNIX_PEER }\n",
                   "auth { unix_peers { uid: 65532 tenant: \"default\" }\n",
                   // A rule comes before what root is without one.
                   "       unix_peers { uid: 0 tenant: \"batch\" role: ROLE_USER } }\n"));
  EXPECT_TRUE(WaitUntil([&] {
    return daemon_.Metric("gemmd_config_reloads_total", "result=\"ok\"") == 1;
  })) << daemon_.log();
  EXPECT_EQ(TenantSeenBy("65532", asked_), "default");
  EXPECT_THAT(CtlAs("65533", {"info", "--server", asked_}).err, HasSubstr("UNKNOWN_PEER"));
  EXPECT_EQ(TenantSeenBy("", asked_), "batch");
  EXPECT_THAT(CtlAs("", {"log", "--server", asked_}).err, HasSubstr("ROLE"));
}

}  // namespace
}  // namespace gemmd::e2e
