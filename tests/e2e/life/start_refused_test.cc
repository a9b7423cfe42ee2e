// Mistakes of who starts gemmd: each is told with its remedy, by --check as at the start.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/fixture.h"

namespace gemmd::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kLoopback[] = "listeners { address: \"127.0.0.1:0\" }\n";

class StartRefusedTest : public testing::Test {
 protected:
  // By --check and at the start alike.
  void ExpectRefused(const std::string& config, const std::string& words,
                     const std::string& remedy) const {
    WriteFile(dir_.File("config"), config);
    for (const bool check : {true, false}) {
      std::vector<std::string> argv = {GEMMD_PATH, "--config", dir_.File("config")};
      if (check) argv.push_back("--check");
      const Finished refused = RunToEnd(argv);
      EXPECT_EQ(refused.status, 2) << config;
      EXPECT_THAT(refused.err, AllOf(HasSubstr(words), HasSubstr(remedy)));
    }
  }

  TempDir dir_;
};

TEST_F(StartRefusedTest, AnEmptyNameOfAConfigIsNoConfig) {
  const Finished refused = RunToEnd({GEMMD_PATH, "--config", "", "--check"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--config: no file given"));
}

TEST_F(StartRefusedTest, ATokenFileThatIsNotThere) {
  ExpectRefused(absl::StrCat("listeners { address: \"127.0.0.1:0\" credentials: CREDENTIAL_TOKEN }",
                             "auth { token_file: \"", dir_.File("tokens"), "\" }"),
                "tokens: cannot open: No such file", "let gemmd's user read it");
}

TEST_F(StartRefusedTest, AnAuthorityOfTheCollectorThatIsNone) {
  const auto tracing = [&](const std::string& file) {
    return absl::StrCat(kLoopback, "tracing { otlp_endpoint: \"127.0.0.1:4317\" ca_file: \"", file,
                        "\" }");
  };
  ExpectRefused(tracing(dir_.File("none")), "tracing.ca_file: ", "let gemmd's user read it");
  WriteFile(dir_.File("text"), "no PEM");
  ExpectRefused(tracing(dir_.File("text")), "tracing.ca_file: ", "-----BEGIN CERTIFICATE-----");
}

// One of two kinds of addresses would be served, and the other's clients would reach somebody else.
TEST_F(StartRefusedTest, AnAddressOfWhichHalfIsTaken) {
  const int taken = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(taken, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
  socklen_t bytes = sizeof(address);
  if (taken < 0 || bind(taken, reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
    GTEST_SKIP() << "no IPv6 here";
  }
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  WriteFile(dir_.File("config"),
            absl::StrCat("listeners { address: \"[::]:", ntohs(address.sin6_port),
                         "\" plaintext_beyond_loopback: true }"));
  const Finished refused = RunToEnd({GEMMD_PATH, "--config", dir_.File("config")});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("Address already in use; 'ss -ltnp"));
  close(taken);
}

TEST_F(StartRefusedTest, ASocketOfSomebodyElse) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  const std::string place = dir_.File("theirs.sock");
  ASSERT_EQ(chmod(dir_.path().c_str(), 01777), 0);
  // Left behind by root.
  Process first = Process::Start({GEMMD_PATH, "--listen", "unix:" + place}, dir_.path());
  ASSERT_TRUE(WaitUntil([&] { return std::filesystem::exists(place); }));
  first.Signal(SIGKILL);
  ASSERT_TRUE(first.Wait(absl::Seconds(30)).has_value());
  ASSERT_EQ(chmod(place.c_str(), 0600), 0);
  for (const bool check : {true, false}) {
    std::vector<std::string> argv = {"/usr/bin/setpriv",
                                     "--reuid=65534",
                                     "--regid=65534",
                                     "--clear-groups",
                                     "/bin/sh",
                                     "-c",
                                     "exec \"$@\"",
                                     "sh",
                                     FindProgram(GEMMD_PATH)};
    argv.insert(argv.end(), {"--listen", "unix:" + place});
    if (check) argv.push_back("--check");
    const Finished refused = RunToEnd(argv);
    if (refused.status == 126) GTEST_SKIP() << "somebody else may not run gemmd: " << refused.err;
    EXPECT_EQ(refused.status, check ? 2 : 1);
    EXPECT_THAT(refused.err, AllOf(HasSubstr(place), HasSubstr("a socket of user 0"),
                                   HasSubstr("choose another address")));
  }
}

TEST_F(StartRefusedTest, WhatCannotBePrintedIsAnError) {
  for (const char* option : {"--print-config", "--help", "--version"}) {
    const Finished done =
        RunToEnd({"/bin/sh", "-c", FindProgram(GEMMD_PATH) + " " + option + " 2>&1 >/dev/full"});
    EXPECT_EQ(done.status, 1) << option;
    EXPECT_EQ(done.out, "gemmd: cannot write to stdout: No space left on device\n") << option;
  }
}

}  // namespace
}  // namespace gemmd::e2e
