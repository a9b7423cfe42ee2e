#include "server/engine/share/tcp_listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>
#include <vector>

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

int PortOf(const TcpListener& listener) {
  return std::stoi(listener.address().substr(listener.address().rfind(':') + 1));
}

// Whether 127.0.0.1 takes a connection at that port.
bool Connects(int port) {
  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

TEST(TcpListenerTest, FillsInTheFreePortThatItGot) {
  const auto listener = TcpListener::Bind("127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_THAT(listener->address(), MatchesRegex("127\\.0\\.0\\.1:[1-9][0-9]*"));
  EXPECT_TRUE(Connects(PortOf(*listener)));
}

TEST(TcpListenerTest, AllAddressesOfANameHaveOnePort) {
  const auto listener = TcpListener::Bind("localhost:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_GE(listener->fds().size(), 1);
  EXPECT_TRUE(Connects(PortOf(*listener)));
}

TEST(TcpListenerTest, AWildcardOfEitherKindTakesIpv4) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    const auto listener = TcpListener::Bind(address);
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_TRUE(Connects(PortOf(*listener))) << address;
  }
}

TEST(TcpListenerTest, AnAddressInUseIsNamedWithTheCause) {
  const auto first = TcpListener::Bind("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = TcpListener::Bind(first->address());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(first->address()), HasSubstr("in use")));
}

TEST(TcpListenerTest, ConnectionsDoNotWaitForMoreBytes) {
  const auto listener = TcpListener::Bind("127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  ASSERT_TRUE(Connects(PortOf(*listener)));
  UniqueFd connection;
  while (!connection.valid()) connection = UniqueFd(accept(listener->fds()[0], nullptr, nullptr));
  int no_delay = 0;
  socklen_t bytes = sizeof(no_delay);
  ASSERT_EQ(getsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &bytes), 0);
  EXPECT_EQ(no_delay, 1);
}

}  // namespace
}  // namespace gemmd::server
