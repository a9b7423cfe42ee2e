// The client's side of the share socket, down to the malformed: what tests send and get.

#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "server/engine/share/share.h"

namespace gemmd::server {

struct ShareAnswer {
  std::string bytes;  // up to the end of the connection
  std::vector<UniqueFd> fds;

  bool refused() const { return bytes.size() > 1 && bytes[0] == 1 && fds.empty(); }
};

class ShareClient {
 public:
  explicit ShareClient(const std::string& address)
      : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const bool abstract = address.starts_with("unix-abstract:");
    const std::string name =
        abstract ? std::string(1, '\0') + address.substr(14) : address.substr(5);
    sockaddr_un target = {};
    target.sun_family = AF_UNIX;
    std::memcpy(target.sun_path, name.data(), name.size());
    const socklen_t bytes = offsetof(sockaddr_un, sun_path) + name.size();
    connected_ = connect(fd_.get(), reinterpret_cast<sockaddr*>(&target), bytes) == 0;
  }

  bool connected() const { return connected_; }

  bool Send(const std::string& bytes, const std::vector<int>& fds = {}) {
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
    iovec data = {const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(part), fds.data(), fds.size() * sizeof(int));
    }
    return sendmsg(fd_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }

  // Reads to the end of the connection.
  ShareAnswer Receive() {
    ShareAnswer answer;
    for (;;) {
      char bytes[512];
      alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
      iovec data = {bytes, sizeof(bytes)};
      msghdr message = {};
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      const ssize_t got = recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
      if (got <= 0) return answer;
      answer.bytes.append(bytes, static_cast<size_t>(got));
      for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(part), sizeof(fd));
        answer.fds.emplace_back(fd);
      }
    }
  }

 private:
  UniqueFd fd_;
  bool connected_ = false;
};

inline ShareAnswer Exchange(const std::string& address, const std::string& bytes,
                            const std::vector<int>& fds = {}) {
  ShareClient client(address);
  EXPECT_TRUE(client.connected());
  EXPECT_TRUE(client.Send(bytes, fds));
  return client.Receive();
}

inline ShareAnswer GetShared(const std::string& address, const Handle& token) {
  return Exchange(address, "G" + ToBytes(token));
}

inline int OpenDescriptors() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // another thread may close it meanwhile
    const std::string file = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && (file.starts_with("socket:") || file.starts_with("/memfd:"))) ++count;
  }
  return count;
}

}  // namespace gemmd::server
