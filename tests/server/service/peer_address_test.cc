#include "server/service/listen/peer_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace gemmd::server {
namespace {

sockaddr_storage Ipv6(const char* text, uint16_t port) {
  sockaddr_storage storage = {};
  auto& address = reinterpret_cast<sockaddr_in6&>(storage);
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET6, text, &address.sin6_addr), 1);
  return storage;
}

TEST(PeerAddressTest, Ipv4IsNamedAsGrpcNamesIt) {
  sockaddr_storage storage = {};
  auto& address = reinterpret_cast<sockaddr_in&>(storage);
  address.sin_family = AF_INET;
  address.sin_port = htons(41234);
  ASSERT_EQ(inet_pton(AF_INET, "10.0.0.7", &address.sin_addr), 1);
  EXPECT_EQ(Describe(storage).name, "ipv4:10.0.0.7:41234");
  EXPECT_EQ(Describe(storage).host, "10.0.0.7");
}

TEST(PeerAddressTest, Ipv4ThatCameByIpv6IsIpv4) {
  EXPECT_EQ(Describe(Ipv6("::ffff:10.0.0.7", 5)).name, "ipv4:10.0.0.7:5");
  EXPECT_EQ(Describe(Ipv6("::ffff:10.0.0.7", 5)).host, "10.0.0.7");
}

TEST(PeerAddressTest, AnIpv6NetworkIsOnePeer) {
  EXPECT_EQ(Describe(Ipv6("fd00::1:7", 5)).name, "ipv6:%5Bfd00::1:7%5D:5");
  EXPECT_EQ(Describe(Ipv6("fd00::1:7", 5)).host, "fd00::");
  EXPECT_EQ(Describe(Ipv6("fd00::2:8", 6)).host, Describe(Ipv6("fd00::1:7", 5)).host);
  EXPECT_NE(Describe(Ipv6("fd00:0:0:1::7", 5)).host, Describe(Ipv6("fd00::1:7", 5)).host);
}

}  // namespace
}  // namespace gemmd::server
