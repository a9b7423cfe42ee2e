#include "tests/hostile/http2.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/secured.h"

namespace gemmd::hostile {
namespace {

using namespace std::string_literals;

constexpr char kHealth[] = "/grpc.health.v1.Health/Check";

// The health of the whole server, asked for and answered in bare frames.
std::string AskForHealth(const PeerOptions& options) {
  RawConnection peer(options);
  if (!peer.Handshake()) return "no handshake";
  peer.Send(Frame(FrameType::kHeaders, kEndHeaders, 1, RequestHeaders(kHealth)) +
            Frame(FrameType::kData, kEndStream, 1, Message("")));
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (peer.data(1).empty() && absl::Now() < end && peer.Read(absl::Milliseconds(20))) {
  }
  return peer.data(1);
}

const std::string kServing = Message("\x08\x01"s);

TEST(RawConnectionTest, SpeaksHttp2OverTcpUnixSocketsAndTls) {
  e2e::Secured secured;
  EXPECT_EQ(AskForHealth({.target = secured.daemon().tcp_target()}), kServing);
  EXPECT_EQ(AskForHealth({.target = secured.daemon().target()}), kServing);
  EXPECT_EQ(AskForHealth({.target = secured.by_either(), .tls = true}), kServing);
  EXPECT_EQ(AskForHealth({.target = secured.by_certificate(),
                          .tls = true,
                          .identity = secured.CallerIdentity("user")}),
            kServing);
}

TEST(RawConnectionTest, IsCutByAListenerThatWantsACertificate) {
  e2e::Secured secured;
  RawConnection peer({.target = secured.by_certificate(), .tls = true});
  EXPECT_FALSE(peer.Handshake());
}

}  // namespace
}  // namespace gemmd::hostile
