#include "server/engine/share/share.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <thread>

#include "tests/server/engine/fake_clock.h"
#include "tests/server/engine/share_client.h"

namespace gemmd::server {
namespace {

using testing::HasSubstr;

class ShareSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    auto socket = ShareSocket::Start({}, clock_, log_);
    ASSERT_TRUE(socket.ok()) << socket.status();
    socket_ = *std::move(socket);
    address_ = socket_->address();
    memory_ = NewMemory();
  }

  static UniqueFd NewMemory() {
    UniqueFd fd(memfd_create("share_test", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(fd.get(), 4096), 0);
    return fd;
  }

  Handle Offer(bool writable = true, const std::string& owner = "default") {
    const auto token = socket_->Offer(memory_.get(), writable, owner);
    EXPECT_TRUE(token.ok()) << token.status();
    return token.ok() ? *token : Handle();
  }

  // The token of a successful put.
  Handle Put(int fd) {
    const ShareAnswer answer = Exchange(address_, "P", {fd});
    EXPECT_EQ(answer.bytes.size(), 1 + kHandleBytes);
    EXPECT_EQ(answer.bytes[0], 0);
    return HandleFromBytes(std::string_view(answer.bytes).substr(1)).value_or(Handle());
  }

  static ino_t FileOf(int fd) {
    struct stat file = {};
    EXPECT_EQ(fstat(fd, &file), 0);
    return file.st_ino;
  }

  // Ends when the thread has closed what it should: it looks every 50 ms.
  static void WaitForDescriptors(int count) {
    while (OpenDescriptors() > count) std::this_thread::yield();
    EXPECT_EQ(OpenDescriptors(), count);
  }

  FakeClock clock_;
  Log log_{{.level = LogLevel::kError}};
  std::unique_ptr<ShareSocket> socket_;
  std::string address_;
  UniqueFd memory_;
};

TEST_F(ShareSocketTest, GetDeliversTheOfferedFile) {
  ASSERT_EQ(write(memory_.get(), "hello", 5), 5);
  const ShareAnswer answer = GetShared(address_, Offer());
  EXPECT_EQ(answer.bytes, std::string(1, '\0'));
  ASSERT_EQ(answer.fds.size(), 1);
  EXPECT_EQ(FileOf(answer.fds[0].get()), FileOf(memory_.get()));
  void* map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, answer.fds[0].get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_EQ(std::memcmp(map, "hello", 5), 0);
  munmap(map, 4096);
}

TEST_F(ShareSocketTest, OfferOutlivesTheDescriptorOfTheOfferer) {
  const ino_t file = FileOf(memory_.get());
  const Handle token = Offer();
  memory_ = UniqueFd();
  const ShareAnswer answer = GetShared(address_, token);
  ASSERT_EQ(answer.fds.size(), 1);
  EXPECT_EQ(FileOf(answer.fds[0].get()), file);
}

TEST_F(ShareSocketTest, TokenWorksOnce) {
  const Handle token = Offer();
  EXPECT_EQ(GetShared(address_, token).fds.size(), 1);
  const ShareAnswer again = GetShared(address_, token);
  EXPECT_TRUE(again.refused());
  EXPECT_THAT(again.bytes, HasSubstr("no such token"));
}

TEST_F(ShareSocketTest, UnknownTokenIsRefused) {
  Offer();
  EXPECT_TRUE(GetShared(address_, NewHandle()).refused());
  EXPECT_TRUE(GetShared(address_, Handle()).refused());
}

TEST_F(ShareSocketTest, PutIsRedeemedOnce) {
  const Handle token = Put(memory_.get());
  const auto fd = socket_->Redeem(token);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(FileOf(fd->get()), FileOf(memory_.get()));
  EXPECT_NE(fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(socket_->Redeem(token).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ShareSocketTest, TokensOfOneWayDoNotWorkTheOther) {
  const Handle offered = Offer();
  EXPECT_EQ(socket_->Redeem(offered).status().code(), absl::StatusCode::kNotFound);
  const Handle put = Put(memory_.get());
  EXPECT_TRUE(GetShared(address_, put).refused());
  // And the attempts used nothing up.
  EXPECT_EQ(GetShared(address_, offered).fds.size(), 1);
  EXPECT_TRUE(socket_->Redeem(put).ok());
}

TEST_F(ShareSocketTest, TokensDieAfterTenSeconds) {
  const Handle offered = Offer();
  const Handle put = Put(memory_.get());
  clock_.Advance(absl::Milliseconds(9999));
  const Handle late = Offer();
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(GetShared(address_, offered).refused());
  EXPECT_EQ(socket_->Redeem(put).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetShared(address_, late).fds.size(), 1);
}

TEST_F(ShareSocketTest, ExpiredDescriptorsAreClosedWithoutAnyCall) {
  const int before = OpenDescriptors();
  for (int i = 0; i < 10; ++i) Offer();
  for (int i = 0; i < 10; ++i) Put(memory_.get());
  EXPECT_GE(OpenDescriptors(), before + 20);
  clock_.Advance(absl::Seconds(10));
  WaitForDescriptors(before);
}

TEST_F(ShareSocketTest, ReadOnlyOfferCannotBeMappedWritable) {
  const ShareAnswer answer = GetShared(address_, Offer(/*writable=*/false));
  ASSERT_EQ(answer.fds.size(), 1);
  const int fd = answer.fds[0].get();
  EXPECT_EQ(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  void* map = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_NE(mprotect(map, 4096, PROT_READ | PROT_WRITE), 0);
  munmap(map, 4096);
  EXPECT_NE(ftruncate(fd, 1), 0);
  // Not even by opening it again, unless its owner changes the mode first. Root may always.
  struct stat file = {};
  ASSERT_EQ(fstat(fd, &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0400);
  // The offerer's own descriptor writes as before, and so do later writable offers.
  EXPECT_EQ(write(memory_.get(), "x", 1), 1);
  const ShareAnswer writable = GetShared(address_, Offer());
  ASSERT_EQ(writable.fds.size(), 1);
  EXPECT_EQ(write(writable.fds[0].get(), "x", 1), 1);
}

TEST_F(ShareSocketTest, OfferOfABadDescriptorFails) {
  EXPECT_EQ(socket_->Offer(-1, true, "default").status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(socket_->Offer(-1, false, "default").status().code(), absl::StatusCode::kInternal);
}

TEST_F(ShareSocketTest, PutsCannotCrowdOutOffers) {
  // The one user id that puts here leaves half of the places to another.
  for (int i = 0; i < ShareSocket::kMaxPending / 2; ++i) Put(memory_.get());
  const ShareAnswer refused = Exchange(address_, "P", {memory_.get()});
  EXPECT_TRUE(refused.refused());
  EXPECT_THAT(refused.bytes, HasSubstr("512"));
  EXPECT_EQ(GetShared(address_, Offer()).fds.size(), 1);
  clock_.Advance(absl::Seconds(10));
  Put(memory_.get());
}

TEST_F(ShareSocketTest, ATenantsOffersLeaveAShareToOthers) {
  const auto offers = [&](const std::string& owner) {
    int taken = 0;
    while (socket_->Offer(memory_.get(), true, owner).ok()) ++taken;
    return taken;
  };
  EXPECT_EQ(offers("greedy"), ShareSocket::kMaxPending / 2);
  EXPECT_EQ(offers("second"), ShareSocket::kMaxPending / 3);
  EXPECT_GT(offers("third"), 0);
  EXPECT_EQ(socket_->Offer(memory_.get(), true, "greedy").status().code(),
            absl::StatusCode::kResourceExhausted);
  clock_.Advance(absl::Seconds(10));
  Offer();
}

TEST_F(ShareSocketTest, DescriptorCountIsFlatOverManyExchanges) {
  Put(memory_.get());
  GetShared(address_, Offer());
  const int before = OpenDescriptors() - 1;  // less the put's, which expires
  clock_.Advance(absl::Seconds(10));
  for (int i = 0; i < 2000; ++i) {
    EXPECT_EQ(GetShared(address_, Offer(i % 2 == 0)).fds.size(), 1);
    EXPECT_TRUE(socket_->Redeem(Put(memory_.get())).ok());
  }
  WaitForDescriptors(before);
}

}  // namespace
}  // namespace gemmd::server
