// What peers of the share socket may do wrong.

#include "server/engine/share/share_peer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "tests/server/engine/fake_clock.h"
#include "tests/server/engine/share_client.h"

namespace gemmd::server {
namespace {

using testing::HasSubstr;

class SharePeerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto socket = ShareSocket::Start({}, clock_, log_);
    ASSERT_TRUE(socket.ok()) << socket.status();
    socket_ = *std::move(socket);
    address_ = socket_->address();
  }

  // One full exchange works.
  void ExpectServed() {
    const auto token = socket_->Offer(memory_.get(), true, "default");
    ASSERT_TRUE(token.ok()) << token.status();
    EXPECT_EQ(GetShared(address_, *token).fds.size(), 1);
  }

  static void WaitForDescriptors(int count) {
    while (OpenDescriptors() > count) std::this_thread::yield();
    EXPECT_EQ(OpenDescriptors(), count);
  }

  FakeClock clock_;
  Log log_{{.level = LogLevel::kError}};
  UniqueFd memory_{memfd_create("share_peer_test", MFD_CLOEXEC)};
  std::unique_ptr<ShareSocket> socket_;
  std::string address_;
};

TEST_F(SharePeerTest, UnknownFirstByteIsRefused) {
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == 'G' || byte == 'P') continue;
    const ShareAnswer answer = Exchange(address_, std::string(1, static_cast<char>(byte)));
    EXPECT_TRUE(answer.refused()) << byte;
  }
  ExpectServed();
}

TEST_F(SharePeerTest, GarbageIsRefusedWhateverItsLength) {
  for (const size_t length : {2, 17, 18, 1000}) {
    EXPECT_TRUE(Exchange(address_, std::string(length, '\xee')).refused()) << length;
  }
  ShareClient endless(address_);
  while (endless.Send(std::string(10000, '\xee'))) {
  }  // ends when it is cut
  ExpectServed();
}

TEST_F(SharePeerTest, RequestMayComeByteByByte) {
  const auto token = socket_->Offer(memory_.get(), true, "default");
  ASSERT_TRUE(token.ok());
  ShareClient client(address_);
  for (const char byte : "G" + ToBytes(*token)) ASSERT_TRUE(client.Send(std::string(1, byte)));
  EXPECT_EQ(client.Receive().fds.size(), 1);
}

TEST_F(SharePeerTest, BytesAfterAGetAreIgnored) {
  const auto token = socket_->Offer(memory_.get(), true, "default");
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(Exchange(address_, "G" + ToBytes(*token) + "GGGG").fds.size(), 1);
}

TEST_F(SharePeerTest, PutWithoutADescriptorIsRefused) {
  const ShareAnswer answer = Exchange(address_, "P");
  EXPECT_TRUE(answer.refused());
  EXPECT_THAT(answer.bytes, HasSubstr("one descriptor"));
}

TEST_F(SharePeerTest, WrongNumbersOfDescriptorsAreRefusedAndClosed) {
  const int before = OpenDescriptors();
  const int fd = memory_.get();
  EXPECT_TRUE(Exchange(address_, "P", {fd, fd}).refused());
  EXPECT_TRUE(Exchange(address_, "P", std::vector<int>(16, fd)).refused());
  EXPECT_TRUE(Exchange(address_, "G" + ToBytes(NewHandle()), {fd}).refused());
  EXPECT_TRUE(Exchange(address_, "G", {fd}).refused());
  EXPECT_TRUE(Exchange(address_, "x", {fd}).refused());
  WaitForDescriptors(before);
}

TEST_F(SharePeerTest, SilentPeerIsCutAfterTwoSeconds) {
  const int before = OpenDescriptors();
  {
    ShareClient silent(address_);
    ASSERT_TRUE(silent.connected());
    ExpectServed();  // so the silent one, which came before, is being served too
    clock_.Advance(absl::Seconds(2));
    const ShareAnswer answer = silent.Receive();  // returns at the cut
    EXPECT_EQ(answer.bytes, "");
  }
  WaitForDescriptors(before);
}

TEST_F(SharePeerTest, HalfAMessageIsCutAfterTwoSeconds) {
  ShareClient half(address_);
  ASSERT_TRUE(half.Send("G12345"));
  ExpectServed();
  clock_.Advance(absl::Milliseconds(1999));
  ExpectServed();
  ASSERT_TRUE(half.Send("6"));  // still connected
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(half.Receive().bytes, "");
}

TEST_F(SharePeerTest, PeerThatLeavesInTheMiddleCostsNothing) {
  const int before = OpenDescriptors();
  for (int i = 0; i < 500; ++i) {
    ShareClient client(address_);
    ASSERT_TRUE(client.Send(i % 2 ? "G123" : "G"));
  }
  ExpectServed();
  WaitForDescriptors(before);
}

TEST_F(SharePeerTest, PeerThatLeavesBeforeItsAnswerCostsNothing) {
  const int before = OpenDescriptors();
  for (int i = 0; i < 500; ++i) {
    const auto token = socket_->Offer(memory_.get(), true, "default");
    ASSERT_TRUE(token.ok());
    ShareClient client(address_);
    ASSERT_TRUE(client.Send("G" + ToBytes(*token)));
  }
  ExpectServed();
  WaitForDescriptors(before);
}

TEST_F(SharePeerTest, ManyPeersAtOnceAreAllServed) {
  constexpr int kPeers = 3 * ShareSocket::kMaxPeers;
  std::vector<ShareClient> clients;
  std::vector<Handle> tokens;
  for (int i = 0; i < kPeers; ++i) {
    const auto token = socket_->Offer(memory_.get(), true, "default");
    ASSERT_TRUE(token.ok());
    tokens.push_back(*token);
    clients.emplace_back(address_);
    ASSERT_TRUE(clients.back().connected());
  }
  for (int i = 0; i < kPeers; ++i) {
    ASSERT_TRUE(clients[i].Send("G" + ToBytes(tokens[i])));
  }
  for (ShareClient& client : clients) EXPECT_EQ(client.Receive().fds.size(), 1);
}

TEST_F(SharePeerTest, StalledPeersGiveWaySoonerWhenAllPlacesAreTaken) {
  std::vector<ShareClient> stalled;
  for (int i = 0; i < ShareSocket::kMaxPeers; ++i) stalled.emplace_back(address_);
  const auto token = socket_->Offer(memory_.get(), true, "default");
  ASSERT_TRUE(token.ok());
  ShareClient waiting(address_);
  ASSERT_TRUE(waiting.Send("G" + ToBytes(*token)));
  // The places fill at some moment of the real clock, so time has to pass more than once.
  std::atomic<bool> served{false};
  std::thread time([&] {
    for (; !served; absl::SleepFor(absl::Milliseconds(1))) clock_.Advance(absl::Milliseconds(1));
  });
  const ShareAnswer answer = waiting.Receive();
  served = true;
  time.join();
  EXPECT_EQ(answer.bytes.substr(0, 1), std::string(1, '\0'));
}

TEST_F(SharePeerTest, StoppingDoesNotWaitForPeers) {
  ShareClient silent(address_);
  ExpectServed();
  socket_.reset();
  EXPECT_EQ(silent.Receive().bytes, "");
  EXPECT_FALSE(ShareClient(address_).connected());
}

TEST_F(SharePeerTest, ThreadsMayOfferAndFetchAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < 200; ++i) ExpectServed();
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace gemmd::server
