#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/client/cpp/fake_state.h"

namespace gemmd::client {

FakeShare::FakeShare(FakeState& state) : state_(state) {
  static std::atomic<int> count = 0;
  const std::string name = absl::StrCat("gemmd-fake-share-", getpid(), "-", count++);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bind(listener_, reinterpret_cast<sockaddr*>(&address),
       static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
  listen(listener_, 8);
  address_ = absl::StrCat("unix-abstract:", name);
  thread_ = std::thread([this] { Serve(); });
}

FakeShare::~FakeShare() {
  shutdown(listener_, SHUT_RDWR);  // wakes accept
  thread_.join();
  close(listener_);
}

void FakeShare::Serve() {
  for (;;) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    Answer(connection);
    close(connection);
  }
}

void FakeShare::Answer(int connection) {
  char request[17];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec data = {request, sizeof(request)};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) return;
  absl::MutexLock lock(&state_.mu);
  std::string answer(1, '\0');
  iovec reply_data = {};
  msghdr reply = {};
  reply.msg_iov = &reply_data;
  reply.msg_iovlen = 1;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (request[0] == 'P' && header != nullptr) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    const std::string token = state_.NewId();
    state_.tokens[token] = fd;
    answer += token;
  } else {
    const auto found = state_.tokens.find(std::string(request + 1, static_cast<size_t>(got) - 1));
    if (found == state_.tokens.end()) {
      answer = "\1unknown token";
    } else {
      reply.msg_control = control;
      reply.msg_controllen = sizeof(control);
      cmsghdr* out = CMSG_FIRSTHDR(&reply);
      out->cmsg_level = SOL_SOCKET;
      out->cmsg_type = SCM_RIGHTS;
      out->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(out), &found->second, sizeof(int));
      state_.tokens.erase(found);
    }
  }
  reply_data = {answer.data(), answer.size()};
  sendmsg(connection, &reply, MSG_NOSIGNAL);
}

}  // namespace gemmd::client
