// Connections over socket pairs: bytes that the test sends are received as gRPC does.

#include "server/guard/connections.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/guard/peer.h"
#include "server/guard/token_bucket.h"

namespace gemmd::guard {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr int64_t kMiB = 1 << 20;
constexpr ConnectionLimits kLimits = {
    .max = 6, .max_per_peer = 4, .max_streams = 100, .max_unfinished_bytes = 2 * kMiB};

std::string Frame(int type, int flags, uint32_t stream, size_t bytes) {
  std::string frame;
  for (int shift = 16; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(bytes >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(stream >> shift));
  return frame + std::string(bytes, 'x');
}

// A call's first frame and some of its message.
std::string Unfinished(uint32_t stream, size_t bytes) {
  return Frame(1, 4, stream, 10) + Frame(0, 0, stream, bytes);
}

class ConnectionsTest : public testing::Test {
 protected:
  struct Pipe {
    int ours;    // the client's end
    int theirs;  // which is watched
  };

  ~ConnectionsTest() override {
    for (const Pipe& pipe : pipes_) {
      close(pipe.ours);
      if (pipe.theirs >= 0) close(pipe.theirs);
    }
  }

  Refusal Open(const std::string& peer, bool health_only = false) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    const Refusal refusal = connections_.Open({.fd = ends[1],
                                               .peer = peer,
                                               .name = absl::StrCat("fd:", ends[1]),
                                               .health_only = health_only},
                                              turn_);
    pipes_.push_back({ends[0], ends[1]});
    if (refusal == Refusal::kNone) Send(pipes_.size() - 1, std::string(24, 'P'));
    return refusal;
  }
  void Close(size_t index) {
    close(pipes_[index].theirs);
    pipes_[index].theirs = -1;
  }
  std::string NameOf(size_t index) { return absl::StrCat("fd:", pipes_[index].theirs); }

  // Whether the connection still stands once the bytes were received.
  bool Send(size_t index, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(pipes_[index].ours, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      if (!Receive(index)) return false;
    }
    return true;
  }
  // The server's side, as gRPC sends: in two pieces.
  void Answer(size_t index, std::string bytes) {
    const size_t half = bytes.size() / 2;
    iovec pieces[] = {{bytes.data(), half}, {bytes.data() + half, bytes.size() - half}};
    msghdr message = {};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    EXPECT_EQ(sendmsg(pipes_[index].theirs, &message, MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // As gRPC does, into two pieces of memory.
  bool Receive(size_t index) {
    char first[1000], second[100000];
    iovec pieces[] = {{first, sizeof(first)}, {second, sizeof(second)}};
    msghdr message = {};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    while (recvmsg(pipes_[index].theirs, &message, 0) > 0) {
    }
    return errno == EAGAIN;
  }

  // Has so many connections of `peer` cut.
  void HaveCut(const std::string& peer, int count) {
    for (int i = 0; i < count; ++i) {
      Open(peer);
      EXPECT_FALSE(Send(pipes_.size() - 1, Frame(1, 0, 1, 40000) + Frame(9, 0, 1, 40000)));
      Close(pipes_.size() - 1);
    }
  }

  absl::Time turn_;  // of the last that was opened
  std::vector<std::pair<std::string, Breach>> cuts_;
  Connections connections_{kLimits, [this](auto name, auto why) { cuts_.emplace_back(name, why); }};
  std::vector<Pipe> pipes_;
};

TEST_F(ConnectionsTest, CountsThemOfAPeerAndInAll) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Open("a"), Refusal::kNone);
  EXPECT_EQ(Open("a"), Refusal::kPeer);
  EXPECT_FALSE(connections_.full());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Open("b"), Refusal::kNone);
  EXPECT_EQ(Open("b"), Refusal::kAll);
  EXPECT_TRUE(connections_.full());
  EXPECT_EQ(connections_.counts().open, 6);
  Close(0);
  EXPECT_EQ(Open("a"), Refusal::kNone);
  EXPECT_EQ(connections_.counts().refused[static_cast<int>(Refusal::kPeer)], 1);
  EXPECT_EQ(connections_.counts().refused[static_cast<int>(Refusal::kAll)], 1);
}

TEST_F(ConnectionsTest, ProbesHavePlacesOfTheirOwn) {
  for (const char* peer : {"a", "a", "a", "b", "b", "b"}) EXPECT_EQ(Open(peer), Refusal::kNone);
  for (int i = 0; i < Connections::kHealthOnlyPlaces; ++i) {
    EXPECT_EQ(Open("a", /*health_only=*/true), Refusal::kNone);
  }
  EXPECT_NE(Open("a", /*health_only=*/true), Refusal::kNone);
}

TEST_F(ConnectionsTest, WhatIsClosedIsForgotten) {
  for (int round = 0; round < 100; ++round) {
    ASSERT_EQ(Open("a"), Refusal::kNone);
    Close(pipes_.size() - 1);
  }
  EXPECT_EQ(connections_.counts().open, 0);
  EXPECT_FALSE(connections_.AwaitsAdmission());
}

TEST_F(ConnectionsTest, ALongHeaderBlockCutsItsConnectionAlone) {
  Open("a");
  Open("a");
  EXPECT_FALSE(Send(0, Frame(1, 0, 1, 40000) + Frame(9, 0, 1, 40000)));
  EXPECT_FALSE(Send(0, "x"));
  EXPECT_TRUE(Send(1, Frame(1, 5, 1, 40000)));
  EXPECT_THAT(cuts_, ElementsAre(Pair(NameOf(0), Breach::kHeaderBlock)));
}

TEST_F(ConnectionsTest, WhoseConnectionsAreCutByTheDozenWaitsForNewOnes) {
  HaveCut("a", 5);
  Open("a");
  EXPECT_LE(turn_, absl::Now());
  HaveCut("a", 17);
  Open("b");
  EXPECT_LE(turn_, absl::Now());
  Open("a");
  const absl::Time first = turn_;
  Open("a");
  EXPECT_GT(turn_, absl::Now());
  EXPECT_GT(turn_, first);
  // Nobody waits for ever: who would is refused at once.
  int taken = 0;
  for (; taken < 200 && Open("a") == Refusal::kNone; ++taken) Close(pipes_.size() - 1);
  EXPECT_GT(taken, 2);
  EXPECT_LT(taken, 200);
  EXPECT_LT(turn_, absl::Now() + absl::Seconds(12));
  Open("a", /*health_only=*/true);
  EXPECT_LE(turn_, absl::Now());
}

TEST_F(ConnectionsTest, AfterItsPeersResetsAConnectionOfTheSamePeerHasNoneLeft) {
  Open("a");
  Open("b");
  const std::string resets = [] {
    std::string frames;
    for (int i = 0; i < 100; ++i) frames += Frame(3, 0, 1, 4);
    return frames;
  }();
  int sent = 0;
  while (Send(0, resets)) ++sent;
  EXPECT_GE(sent, 20);
  EXPECT_EQ(cuts_.back().second, Breach::kResets);
  EXPECT_TRUE(Send(1, resets));
}

// So many calls at once, from stream `first` on.
std::string Calls(uint32_t first, int count) {
  std::string frames;
  for (int i = 0; i < count; ++i) frames += Frame(1, 5, first + 2 * i, 10);
  return frames;
}

TEST_F(ConnectionsTest, AStrangersCallsDoNotCostAnotherOfItsPeerHis) {
  Open("a");
  Open("a");
  Send(0, Frame(4, 1, 0, 0));
  uint32_t stream = 1;
  while (Send(0, Calls(stream, 20))) stream += 40;
  EXPECT_EQ(cuts_.back().second, Breach::kCalls);
  EXPECT_GE(stream / 2, 500u);
  EXPECT_TRUE(Send(1, Calls(1, 20)));
}

TEST_F(ConnectionsTest, WhoWaitsForAnswersMayCallForEver) {
  Open("a");
  Send(0, Frame(4, 1, 0, 0));
  for (uint32_t stream = 1; stream < 20000; stream += 4) {
    ASSERT_TRUE(Send(0, Calls(stream, 2)));
  }
}

TEST_F(ConnectionsTest, OnceOneWasAdmittedCallsAreNotCounted) {
  Open("a");
  connections_.NoteAdmitted(NameOf(0));
  for (uint32_t stream = 1; stream < 10000; stream += 2) {
    // The server's SETTINGS, acknowledged, bound those that are open.
    if (stream == 1) {
      EXPECT_TRUE(Send(0, Frame(4, 1, 0, 0)));
    }
    ASSERT_TRUE(Send(0, Frame(1, 5, stream, 10)));
  }
}

TEST_F(ConnectionsTest, TheOneWithMostUnfinishedGivesWay) {
  Open("a");
  Open("b");
  Open("c");
  EXPECT_TRUE(Send(0, Unfinished(1, 900000)));
  EXPECT_TRUE(Send(1, Unfinished(1, 700000)));
  // Above the limit with the third, which has little.
  EXPECT_TRUE(Send(2, Unfinished(1, 600000)));
  EXPECT_THAT(cuts_, ElementsAre(Pair(NameOf(0), Breach::kUnfinished)));
  EXPECT_FALSE(Send(0, "x"));
  EXPECT_LT(connections_.counts().unfinished_bytes, kLimits.max_unfinished_bytes);
  Close(1);
  Close(2);
  EXPECT_EQ(connections_.counts().unfinished_bytes, 0);
}

// gRPC answers a call that it refuses before its client has ended it, and forgets it then.
TEST_F(ConnectionsTest, WhatIsAnsweredIsFinished) {
  Open("a");
  for (uint32_t stream = 1; stream < 9; stream += 2) Send(0, Unfinished(stream, 2000));
  const int64_t each = FrameReader::kStreamBytes + 2000;
  EXPECT_EQ(connections_.counts().unfinished_bytes, 4 * each);
  Answer(0, Frame(4, 0, 0, 12) + Frame(1, 4, 1, 50) + Frame(0, 0, 1, 300));  // and more to come
  EXPECT_EQ(connections_.counts().unfinished_bytes, 4 * each);
  Answer(0, Frame(1, 5, 1, 20));  // its end
  EXPECT_EQ(connections_.counts().unfinished_bytes, 3 * each);
  Answer(0, Frame(3, 0, 3, 4));
  EXPECT_EQ(connections_.counts().unfinished_bytes, 2 * each);
  for (uint32_t stream = 5; stream < 9; stream += 2) {
    for (const char byte : Frame(1, 5, stream, 20)) Answer(0, {byte});
  }
  EXPECT_EQ(connections_.counts().unfinished_bytes, 0);
}

// Messages that nobody was admitted for cost what it takes to read them, whole or not.
TEST_F(ConnectionsTest, APeersBytesHaveABudgetUntilACallIsAdmitted) {
  const std::string call = Frame(1, 4, 1, 10) + Frame(0, 1, 1, 100000);  // whole
  Open("a");
  Open("a");
  Open("b");
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Send(0, call));
  connections_.NoteAdmitted(NameOf(0));
  EXPECT_TRUE(Send(0, call));  // gives back what it took
  int sent = 0;
  while (sent < 100 && Send(1, call)) ++sent;
  EXPECT_GE(sent, kLimits.max_unfinished_bytes / 2 / 100000);
  EXPECT_LT(sent, 100);
  EXPECT_EQ(cuts_.back().second, Breach::kUnfinished);
  EXPECT_TRUE(Send(2, call));
}

TEST_F(ConnectionsTest, AnAdmittedCallsConnectionIsNotBounded) {
  Open("a");
  EXPECT_TRUE(connections_.AwaitsAdmission());
  EXPECT_TRUE(Send(0, Unfinished(1, 1000000)));
  connections_.NoteAdmitted(NameOf(0));
  EXPECT_FALSE(connections_.AwaitsAdmission());
  EXPECT_TRUE(Send(0, Unfinished(3, 8000000)));
  EXPECT_EQ(connections_.counts().unfinished_bytes, 0);
  EXPECT_TRUE(cuts_.empty());
}

TEST(TokenBucketTest, FillsAgainAfterTheClockWasSetBack) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000'000);
  TokenBucket bucket({.burst = 10, .per_second = 5});
  EXPECT_TRUE(bucket.Take(10, now));
  EXPECT_FALSE(bucket.Take(1, now - absl::Hours(1)));
  EXPECT_TRUE(bucket.Take(5, now - absl::Hours(1) + absl::Seconds(1)));
}

TEST(PeerTest, DoesNotWaitForAClockThatWasSetBack) {
  absl::Time now = absl::FromUnixSeconds(1'000'000'000);
  Peer peer(kLimits);
  peer.cuts.TakeUpTo(1000, now);
  int turns = 0;
  for (; peer.MayWait(now); ++turns) EXPECT_LE(peer.TakeTurn(now), now + Peer::kLongestWait);
  EXPECT_EQ(turns, 11);
  now -= absl::Hours(1);
  EXPECT_TRUE(peer.MayWait(now));
  EXPECT_EQ(peer.TakeTurn(now), now);
}

TEST(ResolveTest, LimitsFollowTheDescriptors) {
  const auto resolved = [](int64_t descriptors) { return Resolve({}, descriptors); };
  EXPECT_EQ(resolved(64).max, 48);
  EXPECT_EQ(resolved(64).max_per_peer, 24);
  EXPECT_EQ(resolved(1024).max, 768);
  EXPECT_EQ(resolved(1 << 20).max, 4096);
  EXPECT_EQ(resolved(1 << 20).max_per_peer, 1024);
  EXPECT_EQ(Resolve({.max = 10, .max_per_peer = 9}, 1024).max_per_peer, 9);
}

}  // namespace
}  // namespace gemmd::guard
