#include "tests/server/config/config_testing.h"

namespace gemmd::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Listener(const std::string& address) {
  return absl::StrCat("listeners { address: \"", address, "\" }");
}

TEST(ListenersTest, LoopbackAndUnixAddressesAreTaken) {
  for (const char* address : {"127.0.0.1:8470", "127.9.9.9:65535", "localhost:1", "[::1]:8470",
                              "[::1]:0", "unix:/run/gemmd/gemmd.sock", "unix-abstract:gemmd"}) {
    EXPECT_EQ(ConfigOf(Listener(address)).listeners[1].address, address);
  }
}

TEST(ListenersTest, OtherInterfacesAreRefusedWithTheRemedy) {
  for (const char* address :
       {"0.0.0.0:8470", "10.0.0.1:8470", "[::]:8470", "[2001:db8::1]:1", "[::ffff:127.0.0.1]:1"}) {
    ExpectErrors({{Listener(address),
                   "listeners[1].address",
                   {address, "not a loopback", "plaintext", "set tls", "plaintext_beyond_loopback",
                    "127.0.0.1"}}});
  }
}

TEST(ListenersTest, MalformedAddressesAreRefused) {
  ExpectErrors({
      {"listeners { }", "listeners[1].address", {"none given", "127.0.0.1:8470"}},
      {Listener("8470"), "listeners[1].address", {"\"8470\"", "host:port"}},
      {Listener(":8470"), "listeners[1].address", {"host:port"}},
      {Listener("127.0.0.1:"), "listeners[1].address", {"host:port"}},
      {Listener("127.0.0.1:65536"), "listeners[1].address", {"65536", "0 to 65535"}},
      {Listener("127.0.0.1:-1"), "listeners[1].address", {"-1", "0 to 65535"}},
      {Listener("127.0.0.1:http"), "listeners[1].address", {"http"}},
      {Listener("127.0.0.1:000000000000080"), "listeners[1].address", {"0 to 65535"}},
      {Listener("example.com:1"), "listeners[1].address", {"example.com", "IP address"}},
      {Listener("::1:8470"), "listeners[1].address", {"brackets"}},
      {Listener("[127.0.0.1]:1"), "listeners[1].address", {"not an IP address"}},
      {Listener("127.1:1"), "listeners[1].address", {"not an IP address"}},
      {Listener("dns:///127.0.0.1:1"), "listeners[1].address", {"not an IP address"}},
  });
}

TEST(ListenersTest, UnixPathsFitTheSocketAddress) {
  const std::string fits = "unix:/" + std::string(106, 'a');
  EXPECT_EQ(ConfigOf(Listener(fits)).listeners[1].address, fits);
  ExpectErrors({
      {Listener(fits + "a"), "listeners[1].address", {"108 bytes", "above 107", "shorter"}},
      {Listener("unix:"), "listeners[1].address", {"empty", "1 to 107"}},
      {Listener("unix:gemmd.sock"), "listeners[1].address", {"gemmd.sock", "absolute"}},
      {Listener("unix:/a b"), "listeners[1].address", {"\" \"", "letters"}},
      {Listener("unix:/a%20b"), "listeners[1].address", {"\"%\""}},
      {Listener("unix-abstract:"), "listeners[1].address", {"empty", "1 to 107"}},
      {Listener("unix-abstract:" + std::string(108, 'a')), "listeners[1].address", {"107"}},
      {Listener("unix-abstract:a\\000b"), "listeners[1].address", {"character"}},
  });
}

TEST(ListenersTest, ModeIsForUnixPathsOnly) {
  const Config config = ConfigOf(
      "listeners { address: \"unix:/tmp/a\" unix_mode: 0600 }"
      "listeners { address: \"unix:/tmp/b\" }");
  EXPECT_EQ(config.listeners[1].unix_mode, 0600);
  EXPECT_EQ(config.listeners[2].unix_mode, 0660);
  ExpectErrors({
      {"listeners { address: \"unix:/tmp/a\" unix_mode: 660 }",
       "listeners[1].unix_mode",
       {"660", "511", "0660"}},
      {"listeners { address: \"unix:/tmp/a\" unix_mode: -1 }", "listeners[1].unix_mode", {"-1"}},
      {"listeners { address: \"127.0.0.1:1\" unix_mode: 0600 }",
       "listeners[1].unix_mode",
       {"384", "no file", "remove"}},
      {"listeners { address: \"unix-abstract:a\" unix_mode: 0600 }",
       "listeners[1].unix_mode",
       {"no file"}},
  });
}

TEST(ListenersTest, AddressesAreUniqueExceptFreePorts) {
  EXPECT_EQ(ConfigOf(Listener("127.0.0.1:0")).listeners.size(), 2);
  ExpectErrors({{Listener("127.0.0.1:5") + Listener("127.0.0.1:5"),
                 "listeners[2].address",
                 {"127.0.0.1:5", "taken"}}});
}

// By other names, too: --check would find no fault, and the second one would find the first.
TEST(ListenersTest, AnAddressOfManyNamesIsOne) {
  const auto open = [](const char* address) {
    return absl::StrCat("listeners { address: \"", address, "\" health_only: true }\n");
  };
  for (const auto& [one, other] : {std::pair("127.0.0.1:5", "localhost:5"),
                                   {"[::1]:5", "localhost:05"},
                                   {"127.0.0.1:5", "0.0.0.0:5"},
                                   {"[::]:5", "127.0.0.2:5"},
                                   {"[::1]:5", "[0::1]:5"}}) {
    ExpectErrors({{open(one) + open(other), "listeners[2].address", {"taken"}},
                  {open(other) + absl::StrCat("metrics { address: \"", one, "\" }"),
                   "metrics.address",
                   {"taken by listeners[1]"}}});
  }
  for (const auto& [one, other] : {std::pair("127.0.0.1:5", "127.0.0.2:5"),
                                   {"127.0.0.1:5", "[::1]:5"},
                                   {"0.0.0.0:5", "0.0.0.0:6"},
                                   {"0.0.0.0:0", "127.0.0.1:0"}}) {
    EXPECT_EQ(ConfigOf(open(one) + open(other)).listeners.size(), 3) << one << ", " << other;
  }
}

TEST(ListenersTest, BeyondLoopbackWithTlsOrInSoManyWords) {
  const Config config = ConfigOf(R"(
      listeners { address: "0.0.0.0:1" plaintext_beyond_loopback: true }
      listeners { address: "0.0.0.0:2" health_only: true }
      listeners { address: "0.0.0.0:3"
                  tls { certificate_file: "/c" key_file: "/k" client_ca_file: "/a" watch_ms: 2000 } })");
  EXPECT_TRUE(config.listeners[1].plaintext_beyond_loopback);
  EXPECT_TRUE(config.listeners[2].health_only);
  const TlsConfig tls{"/c", "/k", "/a", absl::Seconds(2)};
  EXPECT_EQ(config.listeners[3].tls, tls);
}

TEST(ListenersTest, TlsNeedsItsFilesAndASocketThatLeavesTheHost) {
  ExpectErrors({
      {"listeners { address: \"[::]:1\" tls { key_file: \"/k\" } }",
       "listeners[1].tls.certificate_file",
       {"none given", "PEM"}},
      {"listeners { address: \"[::]:1\" tls { certificate_file: \"/c\" } }",
       "listeners[1].tls.key_file",
       {"none given"}},
      {"listeners { address: \"[::]:1\" tls { certificate_file: \"/c\" key_file: \"/k\" watch_ms: "
       "1 } }",
       "listeners[1].tls.watch_ms",
       {"1", "1000"}},
      {"listeners { address: \"unix:/a\" tls { certificate_file: \"/c\" key_file: \"/k\" } }",
       "listeners[1].tls",
       {"unix:/a", "remove"}},
      {"listeners { address: \"[::]:1\" plaintext_beyond_loopback: true tls { certificate_file: "
       "\"/c\" key_file: \"/k\" } }",
       "listeners[1].plaintext_beyond_loopback",
       {"tls", "remove"}},
      {"listeners { address: \"[::]:1\" health_only: true credentials: CREDENTIAL_TOKEN }"
       "auth { token_file: \"/t\" }",
       "listeners[1].health_only",
       {"credentials", "remove"}},
  });
}

TEST(ListenersTest, CredentialsMustBePossible) {
  const Config config = ConfigOf(R"(
      listeners { address: "unix:/a" credentials: CREDENTIAL_UNIX_PEER credentials: CREDENTIAL_TOKEN
                  role: ROLE_OBSERVER }
      auth { token_file: "/t" })");
  const Credentials asked{.token = true, .unix_peer = true};
  EXPECT_EQ(config.listeners[1].credentials, asked);
  EXPECT_EQ(config.listeners[1].role, Role::kObserver);
  ExpectErrors({
      {"listeners { address: \"127.0.0.1:1\" credentials: CREDENTIAL_UNIX_PEER }",
       "listeners[1].credentials",
       {"127.0.0.1:1", "Unix socket"}},
      {"listeners { address: \"127.0.0.1:1\" credentials: CREDENTIAL_CERTIFICATE }",
       "listeners[1].credentials",
       {"client_ca_file", "set it"}},
      {"listeners { address: \"127.0.0.1:1\" credentials: CREDENTIAL_TOKEN }",
       "listeners[1].credentials",
       {"auth.token_file", "set it"}},
      {"listeners { address: \"127.0.0.1:1\" role: 9 }", "listeners[1].role", {"9", "ROLE_ADMIN"}},
      {"listeners { address: \"127.0.0.1:1\" credentials: 9 }",
       "listeners[1].credentials",
       {"9", "CREDENTIAL_TOKEN"}},
  });
}

TEST(ListenersTest, AtLeastOneIsNeeded) {
  EXPECT_FALSE(ParseConfig("listeners { address: \"0.0.0.0:1\" health_only: true }").ok());
  EXPECT_THAT(std::string(ParseConfig("").status().message()),
              AllOf(testing::StartsWith("listeners: none given"), HasSubstr("--listen")));
}

}  // namespace
}  // namespace gemmd::server
