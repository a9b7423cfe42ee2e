#include "server/engine/share/unix_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <latch>
#include <optional>
#include <thread>
#include <vector>

#include "tests/server/engine/share_client.h"

namespace gemmd::server {
namespace {

class UnixListenerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/gemmd_share_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/share.sock";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static absl::StatusOr<UnixListener> Bind(const std::string& path) {
    return UnixListener::Bind({.path = path, .field = "share.socket_path"});
  }

  // Leaves a socket's file with nobody behind it, as a killed server does.
  void LeaveStaleSocket() {
    const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  std::string folder_;
  std::string path_;
};

TEST_F(UnixListenerTest, AbstractNamesAreRandom) {
  const auto a = Bind("");
  const auto b = Bind("");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_TRUE(a->address().starts_with("unix-abstract:gemmd-"));
  EXPECT_NE(a->address(), b->address());
  EXPECT_TRUE(ShareClient(a->address()).connected());
}

TEST_F(UnixListenerTest, FileHasModeWhateverTheUmask) {
  const mode_t before = umask(0077);
  const auto narrow = Bind(path_);
  umask(0);
  const auto wide = Bind(path_ + "2");
  umask(before);
  ASSERT_TRUE(narrow.ok() && wide.ok());
  EXPECT_EQ(narrow->address(), "unix:" + path_);
  EXPECT_TRUE(ShareClient(narrow->address()).connected());
  for (const std::string& path : {path_, path_ + "2"}) {
    struct stat file = {};
    ASSERT_EQ(lstat(path.c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0660);
  }
}

TEST_F(UnixListenerTest, FileIsRemovedAtTheEnd) {
  { const auto listener = Bind(path_); }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixListenerTest, StaleSocketIsReplaced) {
  LeaveStaleSocket();
  const auto listener = Bind(path_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_TRUE(ShareClient("unix:" + path_).connected());
}

TEST_F(UnixListenerTest, OfServersThatStartAtOnceOneHasTheSocket) {
  constexpr int kServers = 6;
  for (int round = 0; round < 100; ++round) {
    LeaveStaleSocket();
    std::vector<std::optional<UnixListener>> listeners(kServers);
    std::latch all(kServers);
    std::vector<std::thread> servers;
    for (std::optional<UnixListener>& one : listeners) {
      servers.emplace_back([&] {
        all.arrive_and_wait();
        absl::StatusOr<UnixListener> bound = Bind(path_);
        if (bound.ok()) one.emplace(*std::move(bound));
      });
    }
    for (std::thread& server : servers) server.join();
    EXPECT_EQ(std::ranges::count_if(listeners, [](const auto& one) { return one.has_value(); }), 1);
    EXPECT_TRUE(ShareClient("unix:" + path_).connected()) << round;
    listeners.clear();
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
}

TEST_F(UnixListenerTest, LiveSocketIsKept) {
  const auto first = Bind(path_);
  ASSERT_TRUE(first.ok());
  const auto second = Bind(path_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(ShareClient("unix:" + path_).connected());
}

TEST_F(UnixListenerTest, OtherFilesAreKept) {
  std::ofstream(path_) << "precious";
  EXPECT_EQ(Bind(path_).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::filesystem::file_size(path_), 8);
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/etc/passwd", path_);
  EXPECT_EQ(Bind(path_).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

TEST_F(UnixListenerTest, SuccessorsFileIsNotRemoved) {
  auto first = Bind(path_);
  ASSERT_TRUE(first.ok());
  std::filesystem::rename(path_, path_ + ".old");
  const auto second = Bind(path_);
  ASSERT_TRUE(second.ok());
  { const UnixListener ends = *std::move(first); }
  EXPECT_TRUE(ShareClient("unix:" + path_).connected());
}

TEST_F(UnixListenerTest, PathsThatCannotBeAreErrors) {
  EXPECT_EQ(Bind("/" + std::string(107, 'a')).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Bind(folder_ + "/missing/share.sock").status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace gemmd::server
