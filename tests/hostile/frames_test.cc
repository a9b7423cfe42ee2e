// Attacks on memory and time by frames that no client of gRPC's sends, at listeners that ask for
// credentials, none of which the attacker has.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "tests/e2e/secured.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/bystander.h"
#include "tests/hostile/http2.h"
#include "tests/sanitized.h"

namespace gemmd::hostile {
namespace {

constexpr int64_t kMiB = 1 << 20;
// What an attack may add while it goes on: 20,000 calls of gRPC's take 230 to 260 MiB, and without
// limits an attack takes gigabytes.
constexpr int64_t kMaxGrowth = 384 * kMiB;

absl::Duration AttackTime() {
  const char* const seconds = std::getenv("GEMMD_HOSTILE_SECONDS");
  return absl::Seconds(seconds == nullptr ? 4 : std::atoi(seconds));
}

struct Case {
  NamedAttack attack;
  bool tls;
};

void PrintTo(const Case& attacked, std::ostream* out) {
  *out << attacked.attack.name << (attacked.tls ? " by TLS" : " in plaintext");
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const NamedAttack& attack : AllAttacks()) {
    for (const bool tls : {false, true}) cases.push_back({attack, tls});
  }
  return cases;
}

class FramesTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Attacks, FramesTest, testing::ValuesIn(Cases()), [](const auto& info) {
  return absl::StrCat(info.param.attack.name, info.param.tls ? "_tls" : "_plaintext");
});

TEST_P(FramesTest, CostsLittleAndNobodyElse) {
  const auto& [attack, tls] = GetParam();
  e2e::Secured secured;
  e2e::Daemon& daemon = secured.daemon();
  const std::string target = tls ? secured.by_either() : secured.by_token();
  const int64_t start = e2e::UseOf(daemon.process().pid()).resident_bytes;
  PeakMemory peak(daemon.process().pid());
  const auto growth = [&] { return peak.bytes() - start; };
  {
    const auto channel =
        grpc::CreateChannel(target, tls ? secured.RawTls() : grpc::InsecureChannelCredentials());
    Bystander other(channel, nullptr);
    auto client = client::Client::Connect(target, secured.WithToken("user", tls));
    ASSERT_TRUE(client.ok()) << client.status();
    AttackCounts counts;
    // On a busy machine the first connection may stand too late for anything to be sent.
    for (int tries = 0; tries < 5 && counts.sent == 0; ++tries) {
      counts = attack.run({.target = target, .source = "127.0.0.2", .tls = tls},
                          absl::Now() + AttackTime());
    }
    EXPECT_GT(counts.connections, 0);
    EXPECT_GT(counts.sent, 0);
    if (!kSanitized) {
      EXPECT_LE(growth(), kMaxGrowth);
    }
    const Latencies health = other.TakeHealth();
    EXPECT_EQ(health.failed, 0);
    EXPECT_GT(health.ok.size(), 0);
    // A caller who shows a credential is served, on a connection that comes now too.
    const auto session = client->OpenSession();
    EXPECT_TRUE(session.ok()) << session.status();
    auto later = client::Client::Connect(target, secured.WithToken("user", tls));
    ASSERT_TRUE(later.ok()) << later.status();
    const auto later_session = later->OpenSession();
    EXPECT_TRUE(later_session.ok()) << later_session.status();
    EXPECT_TRUE(e2e::WaitUntil([&] {
      return daemon.Metric("gemmd_unfinished_request_bytes") == 0;
    })) << daemon.Metric("gemmd_unfinished_request_bytes")
        << " bytes on " << daemon.Metric("gemmd_connections") << " connections";
  }
  RecordProperty("growth_mib", static_cast<int>(growth() / kMiB));
}

// What the daemon's metrics call it.
double Cut(const e2e::Secured& secured, const std::string& reason) {
  return const_cast<e2e::Secured&>(secured).daemon().Metric(
      "gemmd_connections_cut_total", absl::StrCat("reason=\"", reason, "\""));
}

TEST(GuardTest, SaysWhatItCutAndWhy) {
  e2e::Secured secured;
  for (const bool tls : {false, true}) {
    SCOPED_TRACE(tls);
    const auto attack = [&](Attack run, const char* reason) {
      // Each as a peer of its own: the third uses up what one has.
      static int host = 2;
      const PeerOptions peer{.target = tls ? secured.by_either() : secured.by_token(),
                             .source = absl::StrCat("127.0.0.", host++),
                             .tls = tls,
                             .most_cuts = 1};
      EXPECT_GT(run(peer, absl::Now() + absl::Seconds(60)).cut, 0) << reason;
      EXPECT_GE(Cut(secured, reason), 1 + tls) << reason;
    };
    attack(ContinuationFlood, "header_block");
    attack(ControlFlood, "control_frames");
    attack(RapidReset, "calls");
    attack(UnfinishedMessages, "unfinished");
    attack(WindowUpdates, "control_frames");
    attack(ThinData, "unfinished");
  }
  EXPECT_THAT(secured.daemon().LogWith("connection_cut"), testing::HasSubstr("connection_cut"));
}

// Whoever sends a little too much is told so, by a status.
TEST(GuardTest, LeavesMetadataThatIsALittleTooLargeToGrpc) {
  e2e::Secured secured;
  RawConnection peer({.target = secured.by_token()});
  ASSERT_TRUE(peer.Handshake());
  const std::string block = RequestHeaders("/gemmd.v1.SessionService/OpenSession",
                                           {{"x-large", std::string(12000, 'x')}});
  peer.Send(Frame(FrameType::kHeaders, kEndHeaders, 1, block) +
            Frame(FrameType::kData, kEndStream, 1, Message("")));
  EXPECT_TRUE(e2e::WaitUntil([&] { return !peer.Read() || peer.frames(FrameType::kHeaders) > 0; }));
  EXPECT_GT(peer.frames(FrameType::kHeaders), 0);
  EXPECT_EQ(Cut(secured, "header_block"), 0);
}

// A caller who is known may reset many calls, but not as fast as they come.
TEST(GuardTest, AKnownCallersResetsHaveABudget) {
  e2e::Secured secured;
  RawConnection peer({.target = secured.by_token()});
  ASSERT_TRUE(peer.Handshake());
  const Metadata token = {{"authorization", "Bearer " + e2e::TokenOf("user")}};
  const std::string block = RequestHeaders("/gemmd.v1.SessionService/KeepAlive", token);
  uint32_t stream = 1;
  peer.Send(Frame(FrameType::kHeaders, kEndHeaders, stream, block) +
            Frame(FrameType::kData, kEndStream, stream, Message("")));
  ASSERT_TRUE(e2e::WaitUntil([&] { return !peer.Read() || peer.frames(FrameType::kHeaders) > 0; }));
  const absl::Time until = absl::Now() + absl::Seconds(60);
  while (absl::Now() < until && peer.open()) {
    // Many at once: of what comes one by one a busy machine reads fewer than are allowed a second.
    std::string frames;
    for (int i = 0; i < 250; ++i) {
      stream += 2;
      frames += Frame(FrameType::kHeaders, kEndHeaders, stream, block) + ResetStream(stream);
    }
    peer.Send(frames);
  }
  EXPECT_FALSE(peer.open());
  EXPECT_GT(stream, 4000u);  // two thousand of them
  EXPECT_EQ(Cut(secured, "resets"), 1);
}

TEST(HealthWatchTest, AConnectionHasABoundedNumberOfWatches) {
  e2e::Secured secured;
  RawConnection peer({.target = secured.by_token()});
  ASSERT_TRUE(peer.Handshake());
  for (uint32_t stream = 1; stream < 64; stream += 2) {
    peer.Send(Frame(FrameType::kHeaders, kEndHeaders, stream,
                    RequestHeaders("/grpc.health.v1.Health/Watch")) +
              Frame(FrameType::kData, kEndStream, stream, Message("")));
  }
  // Sixteen are answered by a message; the others end.
  EXPECT_TRUE(e2e::WaitUntil([&] { return !peer.Read() || peer.frames(FrameType::kData) >= 16; }));
  EXPECT_TRUE(
      e2e::WaitUntil([&] { return !peer.Read() || peer.frames(FrameType::kHeaders) >= 32; }));
  EXPECT_EQ(peer.frames(FrameType::kData), 16);
}

// A flood of failing calls by a caller who is known: the log has some of them, and says so.
TEST(FailedCallsTest, FillNeitherTheLogNorHideWhatItLeftOut) {
  e2e::Daemon daemon;
  RawConnection peer({.target = daemon.target()});
  ASSERT_TRUE(peer.Handshake());
  constexpr int kCalls = 2000;
  std::string frames;
  for (uint32_t i = 0; i < kCalls; ++i) {
    const uint32_t stream = 2 * i + 1;
    frames = Frame(FrameType::kHeaders, kEndHeaders, stream,
                   RequestHeaders("/gemmd.v1.SessionService/KeepAlive")) +
             Frame(FrameType::kData, kEndStream, stream, Message(""));
    ASSERT_TRUE(peer.Send(frames));
    // Not more at a time than a connection may have.
    if (i % 500 == 499) {
      ASSERT_TRUE(e2e::WaitUntil(
          [&] { return !peer.Read() || peer.frames(FrameType::kHeaders) > static_cast<int>(i); }));
    }
  }
  const std::string log = daemon.log();
  int lines = 0;
  for (size_t at = log.find("call_failed"); at != std::string::npos;
       at = log.find("call_failed", at + 1)) {
    ++lines;
  }
  EXPECT_GT(lines, 0);
  EXPECT_LT(lines, kCalls / 2);
  EXPECT_EQ(daemon.Metric("gemmd_requests_total", "code=\"INVALID_ARGUMENT\"") +
                daemon.Metric("gemmd_requests_total", "code=\"NOT_FOUND\""),
            kCalls);
}

}  // namespace
}  // namespace gemmd::hostile
