#include "client/cpp/internal/connect/share_socket.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

constexpr size_t kTokenBytes = 16;

absl::Status SocketError(absl::string_view what, absl::string_view address) {
  return absl::UnavailableError(
      absl::StrCat("share socket ", address, ": ", what, ": ", std::strerror(errno)));
}

absl::StatusOr<int> Connect(absl::string_view address) {
  sockaddr_un target = {};
  target.sun_family = AF_UNIX;
  absl::string_view name = address;
  size_t at = 0;  // an abstract name follows a zero byte
  if (absl::ConsumePrefix(&name, "unix-abstract:")) {
    at = 1;
  } else if (!absl::ConsumePrefix(&name, "unix:")) {
    return absl::InvalidArgumentError(
        absl::StrCat("share socket \"", address, "\" is neither unix: nor unix-abstract:"));
  }
  if (name.empty() || at + name.size() >= sizeof(target.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("share socket \"", address, "\" has ",
                                                   name.size(), " bytes of name; 1 to ",
                                                   sizeof(target.sun_path) - 2, " are possible"));
  }
  std::memcpy(target.sun_path + at, name.data(), name.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SocketError("socket", address);
  const timeval patience = {.tv_sec = 5};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const size_t size = offsetof(sockaddr_un, sun_path) + at + name.size();
  if (connect(fd, reinterpret_cast<const sockaddr*>(&target), static_cast<socklen_t>(size)) != 0) {
    const absl::Status status = SocketError("connect", address);
    close(fd);
    return status;
  }
  return fd;
}

// Sends `bytes`, with `fd` attached unless it is -1.
absl::Status Send(int connection, absl::string_view bytes, int fd, absl::string_view address) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec data = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  // A handful of bytes on a fresh connection goes out whole.
  if (sendmsg(connection, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    return SocketError("send", address);
  }
  return absl::OkStatus();
}

// Reads what comes into `bytes` and an attached descriptor into `fd`.
absl::StatusOr<size_t> Receive(int connection, char* bytes, size_t most, int& fd,
                               absl::string_view address) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec data = {bytes, most};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return SocketError("receive", address);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS || fd >= 0) continue;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  }
  return static_cast<size_t>(got);
}

// The whole answer up to `want` bytes behind the leading 0, or the daemon's refusal.
absl::StatusOr<std::string> Answer(int connection, size_t want, int& fd,
                                   absl::string_view address) {
  std::string answer;
  char bytes[512];
  while (answer.empty() || answer[0] != 0 || answer.size() < 1 + want) {
    GEMMD_ASSIGN_OR_RETURN(size_t got, Receive(connection, bytes, sizeof(bytes), fd, address));
    if (got == 0) break;
    answer.append(bytes, got);
  }
  if (answer.size() == 1 + want && answer[0] == 0) return answer.substr(1);
  if (!answer.empty() && answer[0] == 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon refused the descriptor: ", answer.substr(1)));
  }
  return absl::UnavailableError(
      absl::StrCat("share socket ", address, ": an answer of ", answer.size(), " bytes"));
}

}  // namespace

absl::Status ProbeShareSocket(absl::string_view address) {
  GEMMD_ASSIGN_OR_RETURN(const int connection, Connect(address));
  close(connection);
  return absl::OkStatus();
}

absl::StatusOr<int> FetchDescriptor(absl::string_view address, absl::string_view token) {
  GEMMD_ASSIGN_OR_RETURN(const int connection, Connect(address));
  absl::Cleanup closer = [&] { close(connection); };
  GEMMD_RETURN_IF_ERROR(Send(connection, absl::StrCat("G", token), -1, address));
  int fd = -1;
  absl::StatusOr<std::string> answer = Answer(connection, 0, fd, address);
  if (answer.ok() && fd >= 0) return fd;
  if (fd >= 0) close(fd);
  if (!answer.ok()) return answer.status();
  return absl::UnavailableError(
      absl::StrCat("share socket ", address, ": an answer without a descriptor"));
}

absl::StatusOr<std::string> SendDescriptor(absl::string_view address, int fd) {
  GEMMD_ASSIGN_OR_RETURN(const int connection, Connect(address));
  absl::Cleanup closer = [&] { close(connection); };
  GEMMD_RETURN_IF_ERROR(Send(connection, "P", fd, address));
  int unexpected = -1;
  absl::StatusOr<std::string> token = Answer(connection, kTokenBytes, unexpected, address);
  if (unexpected >= 0) close(unexpected);
  return token;
}

}  // namespace gemmd::client
