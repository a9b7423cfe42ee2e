// A first start: without an argument gemmd says where it serves, clients find it there, and what
// cannot work is said before it is tried.

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StartTest : public testing::Test {
 protected:
  std::string Runtime() const { return dir_.path(); }
  std::string Socket() const { return dir_.File("gemmd/gemmd.sock"); }
  // With that runtime folder and without GEMMD_SERVER.
  Finished Run(const std::string& program, std::vector<std::string> args,
               std::vector<std::string> environment = {}) const {
    std::vector<std::string> argv = {"/usr/bin/env", "-u", "GEMMD_SERVER",
                                     "XDG_RUNTIME_DIR=" + Runtime()};
    argv.insert(argv.end(), environment.begin(), environment.end());
    argv.push_back(FindProgram(program));
    argv.insert(argv.end(), args.begin(), args.end());
    return RunToEnd(argv);
  }

  TempDir dir_;
};

TEST_F(StartTest, WithoutAnArgumentItServesOnLoopbackAndOneSocket) {
  const Finished config = Run(GEMMD_PATH, {"--print-config"});
  EXPECT_EQ(config.status, 0) << config.err;
  EXPECT_THAT(config.out,
              AllOf(HasSubstr("\"127.0.0.1:8470\""), HasSubstr("\"unix:" + Socket() + "\"")));
  EXPECT_EQ(Run(GEMMD_PATH, {"--check"}).status, 0);
}

TEST_F(StartTest, WithoutARuntimeFolderTheSocketHasOneOfItsOwn) {
  const Finished config = RunToEnd(
      {"/usr/bin/env", "-u", "XDG_RUNTIME_DIR", FindProgram(GEMMD_PATH), "--print-config"});
  const std::string folder =
      geteuid() == 0 ? "/run/gemmd" : "/tmp/gemmd-" + std::to_string(geteuid());
  EXPECT_THAT(config.out, HasSubstr("\"unix:" + folder + "/gemmd.sock\""));
}

TEST_F(StartTest, TheSocketsFolderIsMadeAndGemmctlFindsItByItself) {
  const std::string ready = dir_.File("ready");
  Process daemon = Process::Start(
      {GEMMD_PATH, "--listen", "unix:" + Socket(), "--ready-file", ready}, dir_.path());
  ASSERT_TRUE(WaitUntil([&] { return !ReadFile(ready).empty() || !daemon.running(); }));
  struct stat info;
  ASSERT_EQ(stat(dir_.File("gemmd").c_str(), &info), 0) << daemon.err();
  EXPECT_EQ(info.st_mode & 022, 0u);
  const Finished found = Run(GEMMCTL_PATH, {"info"});
  EXPECT_EQ(found.status, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("at unix:" + Socket()));
  // The environment says otherwise, the line says otherwise again.
  const std::string nobody = "unix:" + dir_.File("nobody.sock");
  const Finished named =
      Run(GEMMCTL_PATH, {"info", "--timeout", "200ms"}, {"GEMMD_SERVER=" + nobody});
  EXPECT_EQ(named.status, 4);
  EXPECT_THAT(named.err, HasSubstr("nobody.sock"));
  EXPECT_EQ(Run(GEMMCTL_PATH, {"info", "--server", "unix:" + Socket()}, {"GEMMD_SERVER=" + nobody})
                .status,
            0);
}

TEST_F(StartTest, AFolderThatCannotBeMadeIsNamedWithItsRemedy) {
  WriteFile(dir_.File("file"), "no folder");
  for (const std::string& place : {dir_.File("file/x.sock"), dir_.File("none/deeper/x.sock")}) {
    const std::vector<std::string> listen = {"--listen", "unix:" + place};
    std::vector<std::string> check = listen;
    check.push_back("--check");
    const Finished checked = Run(GEMMD_PATH, check), started = Run(GEMMD_PATH, listen);
    EXPECT_EQ(checked.status, 2) << place;
    EXPECT_EQ(started.status, 1) << place;
    for (const Finished& done : {checked, started}) {
      EXPECT_THAT(done.err, AllOf(HasSubstr(place), HasSubstr("choose another address"))) << place;
    }
  }
}

TEST_F(StartTest, AnAddressWithoutItsOptionIsTold) {
  const Finished done = Run(GEMMD_PATH, {"127.0.0.1:0"});
  EXPECT_EQ(done.status, 2);
  EXPECT_THAT(done.err, AllOf(HasSubstr("unexpected argument '127.0.0.1:0'"),
                              HasSubstr("by --listen ADDRESS"), HasSubstr("usage: gemmd")));
}

TEST_F(StartTest, AFileBeyondItsLimitIsAnErrorAndEndsNobody) {
  const std::string ready = dir_.File("ready");
  // Through a pipe: the files that the output goes to here would be limited, too.
  const Finished done = RunToEnd({"/bin/sh", "-c",
                                  "(ulimit -f 0; " + FindProgram(GEMMD_PATH) +
                                      " --listen unix:" + dir_.File("x.sock") + " --ready-file " +
                                      ready + " 2>&1; echo status $?) | cat"});
  EXPECT_THAT(done.out, AllOf(HasSubstr("cannot write --ready-file " + ready + ": File too large"),
                              HasSubstr("status 1\n")));
  EXPECT_FALSE(std::filesystem::exists(ready));
}

TEST_F(StartTest, AGpuThatThisMachineLacksIsToldByTheCheck) {
  const std::string config = dir_.File("gpu");
  WriteFile(config, "listeners { address: \"unix:" + dir_.File("g.sock") +
                        "\" tenant: \"default\" } devices { name: \"cuda:63\" }");
  const Finished checked = Run(GEMMD_PATH, {"--config", config, "--check"});
  if (checked.err.find("not a device of this build") != std::string::npos) {
    GTEST_SKIP() << "built without CUDA";
  }
  EXPECT_EQ(checked.status, 0) << checked.err;  // the config is right where there is one
  EXPECT_THAT(checked.err, HasSubstr("would not start on this machine: device cuda:63: "));
  EXPECT_NE(Run(GEMMD_PATH, {"--config", config}).status, 0);
}

// As a unit of Type=notify wants it: ready once calls are answered, and not before.
TEST_F(StartTest, AServiceManagerIsToldThatItServesAndThatItDrains) {
  const int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {.sun_family = AF_UNIX};
  const std::string place = dir_.File("notify");
  ASSERT_LT(place.size(), sizeof(address.sun_path));
  place.copy(address.sun_path, place.size());
  ASSERT_EQ(bind(manager, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const timeval patience = {.tv_sec = 30};
  setsockopt(manager, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const auto told = [&] {
    char text[64];
    const ssize_t size = recv(manager, text, sizeof(text), 0);
    return size < 0 ? std::string() : std::string(text, size);
  };
  const std::string devices = dir_.File("two");
  WriteFile(devices,
            "devices { name: \"cpu:0\" } devices { name: \"cpu:1\" }"
            "listeners { address: \"unix:" +
                dir_.File("{device}.sock") +
                "\" }"
                "drain { notice_ms: 1 }");
  const std::vector<std::vector<std::string>> ways = {{"--listen", "unix:" + Socket()},
                                                      {"--config", devices, "--supervise"}};
  for (const std::vector<std::string>& way : ways) {
    std::vector<std::string> argv = {"/usr/bin/env", "NOTIFY_SOCKET=" + place,
                                     FindProgram(GEMMD_PATH)};
    argv.insert(argv.end(), way.begin(), way.end());
    Process daemon = Process::Start(argv, dir_.path());
    EXPECT_EQ(told(), "READY=1") << daemon.err();
    const std::string socket = way.size() == 2 ? Socket() : dir_.File("cpu-1.sock");
    EXPECT_EQ(Run(GEMMCTL_PATH, {"info", "--server", "unix:" + socket}).status, 0);
    daemon.Signal(SIGTERM);
    EXPECT_EQ(told(), "STOPPING=1") << daemon.err();
    EXPECT_EQ(daemon.Wait(absl::Seconds(60)), 0) << daemon.err();
    char more;
    EXPECT_LT(recv(manager, &more, 1, MSG_DONTWAIT), 0) << "a device's process has told, too";
  }
  close(manager);
}

TEST_F(StartTest, CheckTriesToBind) {
  // Of TEST-NET-1: an address that no host has.
  WriteFile(dir_.File("config"),
            "listeners { address: \"unix-abstract:gemmd-check\" } metrics { address: "
            "\"192.0.2.1:8471\" }");
  const Finished refused = Run(GEMMD_PATH, {"--config", dir_.File("config"), "--check"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("192.0.2.1:8471"), HasSubstr("cannot bind")));
  // The socket for shared memory has a folder, too.
  WriteFile(
      dir_.File("config"),
      absl::StrCat("listeners { address: \"unix-abstract:gemmd-check\" } share { socket_path: \"",
                   dir_.File("no/such/share.sock"), "\" }"));
  for (const bool check : {true, false}) {
    std::vector<std::string> flags = {"--config", dir_.File("config")};
    if (check) flags.push_back("--check");
    const Finished homeless = Run(GEMMD_PATH, flags);
    EXPECT_EQ(homeless.status, check ? 2 : 1);
    EXPECT_THAT(homeless.err, AllOf(HasSubstr("share.socket_path"), HasSubstr("no/such"),
                                    HasSubstr("install -d")));
  }
  // What a daemon serves already is no fault of the config, but told.
  Daemon daemon;
  const Finished used =
      Run(GEMMD_PATH, {"--check", "--listen", daemon.tcp_target(), "--listen", daemon.target()});
  EXPECT_EQ(used.status, 0) << used.err;
  EXPECT_THAT(used.err, AllOf(HasSubstr("in use now: "), HasSubstr(daemon.tcp_target()),
                              HasSubstr(daemon.target())));
  // Who starts a second one learns how to find the first.
  const Finished second = Run(GEMMD_PATH, {"--listen", daemon.tcp_target()});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("'ss -ltnp sport = :"));
}

TEST_F(StartTest, AnExpiredCertificateIsToldByTheCheckAndInTheLog) {
  Authority authority("servers");
  const Identity old = authority.Issue({.common_name = "gemmd", .end = -absl::Minutes(1)});
  WriteFile(dir_.File("tls.crt"), old.certificate);
  WriteFile(dir_.File("tls.key"), old.key);
  const std::string listener =
      absl::StrCat("listeners { address: \"127.0.0.1:0\" tls { certificate_file: \"",
                   dir_.File("tls.crt"), "\" key_file: \"", dir_.File("tls.key"), "\" } }");
  WriteFile(dir_.File("config"), listener);
  const Finished checked = Run(GEMMD_PATH, {"--config", dir_.File("config"), "--check"});
  EXPECT_EQ(checked.status, 0) << checked.err;  // a new one is taken without a restart
  EXPECT_THAT(checked.err, AllOf(HasSubstr("tls.crt expired on "), HasSubstr("clients refuse it")));
  Daemon daemon({.config = listener});
  EXPECT_TRUE(WaitUntil([&] { return absl::StrContains(daemon.log(), "certificate_expired"); }))
      << daemon.log();
}

TEST_F(StartTest, CheckTellsOfMoreMemoryThanThereIs) {
  for (const auto& [bytes, told] : {std::pair("99999999999999", true), {"1048576", false}}) {
    WriteFile(dir_.File("config"),
              absl::StrCat("listeners { address: \"127.0.0.1:0\" } devices { name: \"cpu:0\" "
                           "memory_bytes: ",
                           bytes, " }"));
    const Finished checked = Run(GEMMD_PATH, {"--config", dir_.File("config"), "--check"});
    EXPECT_EQ(checked.status, 0) << checked.err;
    EXPECT_EQ(absl::StrContains(checked.err, "device cpu:0: memory_bytes "), told) << checked.err;
  }
}

TEST_F(StartTest, CheckKnowsTheKernels) {
  WriteFile(dir_.File("config"),
            "listeners { address: \"127.0.0.1:0\" } devices { name: \"cpu:0\" disabled_kernels: "
            "\"cpu_blass\" }");
  for (const bool check : {true, false}) {
    std::vector<std::string> flags = {"--config", dir_.File("config")};
    if (check) flags.push_back("--check");
    const Finished refused = Run(GEMMD_PATH, flags);
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("cpu_blass"), HasSubstr("cpu_blas, ")));
  }
  // A GPU's too, whether this machine has one or not.
  WriteFile(dir_.File("config"),
            "listeners { address: \"127.0.0.1:0\" } devices { name: \"cuda:0\" disabled_kernels: "
            "\"sm90_fp8_tile\" }");
  const Finished gpu = Run(GEMMD_PATH, {"--config", dir_.File("config"), "--check"});
  EXPECT_EQ(gpu.status, 2);
  if (!absl::StrContains(gpu.err, "not a device of this build")) {
    EXPECT_THAT(gpu.err, AllOf(HasSubstr("sm90_fp8_tile\""), HasSubstr("sm90_fp8_tiled, ")));
  }
}

}  // namespace
}  // namespace gemmd::e2e
