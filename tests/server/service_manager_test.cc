#include "server/service_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace gemmd::server {
namespace {

using testing::HasSubstr;

// A service manager's end: what was told, one datagram at a time.
class Manager {
 public:
  explicit Manager(const std::string& name) : socket_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const socklen_t size = offsetof(sockaddr_un, sun_path) + name.size();
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() {
    unsetenv("NOTIFY_SOCKET");
    close(socket_);
  }
  std::string Told() const {
    char text[64];
    const ssize_t size = recv(socket_, text, sizeof(text), MSG_DONTWAIT);
    return size < 0 ? "" : std::string(text, size);
  }

 private:
  int socket_;
};

TEST(ServiceManagerTest, IsToldAtASocketOfAFileAndOfAName) {
  const std::string id = std::to_string(getpid());
  for (const std::string& name : {testing::TempDir() + "notify." + id, "@gemmd-notify-" + id}) {
    Manager manager(name);
    EXPECT_TRUE(TellServiceManager(kServing).ok()) << name;
    EXPECT_EQ(manager.Told(), "READY=1");
    EXPECT_TRUE(TellServiceManager(kDraining).ok()) << name;
    EXPECT_EQ(manager.Told(), "STOPPING=1");
    EXPECT_EQ(manager.Told(), "");
    unlink(name.c_str());
  }
}

TEST(ServiceManagerTest, NobodyHasToBeTold) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_TRUE(TellServiceManager(kServing).ok());
  setenv("NOTIFY_SOCKET", "", 1);
  EXPECT_TRUE(TellServiceManager(kServing).ok());
  unsetenv("NOTIFY_SOCKET");
}

TEST(ServiceManagerTest, OneThatDoesNotListenIsNamed) {
  for (const std::string& name :
       {std::string("/nowhere/notify"), std::string("notify"), "/" + std::string(200, 'x')}) {
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    const absl::Status told = TellServiceManager(kServing);
    EXPECT_EQ(told.code(), absl::StatusCode::kUnavailable) << name;
    EXPECT_THAT(std::string(told.message()), HasSubstr(name));
  }
  unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace gemmd::server
