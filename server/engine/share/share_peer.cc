#include "server/engine/share/share_peer.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr char kGet = 'G';
constexpr char kPut = 'P';
constexpr size_t kGetBytes = 1 + kHandleBytes;
constexpr size_t kMaxDescriptors = 4;  // received in one read; the kernel closes the rest itself

}  // namespace

SharePeer::Progress SharePeer::OnReadable(ShareTokens& tokens) {
  while (!complete()) {
    switch (ReadOnce()) {
      case Read::kSome:
        break;
      case Read::kNothingNow:
        return Progress::kMore;
      case Read::kEnd:
        return Progress::kDone;  // it left in the middle: nobody to answer
    }
  }
  Answer(tokens);
  return Progress::kDone;
}

bool SharePeer::complete() const {
  if (request_.empty()) return false;
  if (!received_.empty()) return true;  // or a get, byte by byte, could pile up descriptors
  return request_[0] != kGet || request_.size() == kGetBytes;
}

SharePeer::Read SharePeer::ReadOnce() {
  std::array<char, kGetBytes> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control;
  iovec data = {bytes.data(), kGetBytes - request_.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(fd(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) {
    if (errno == EINTR) return Read::kSome;
    return errno == EAGAIN ? Read::kNothingNow : Read::kEnd;
  }
  // Descriptors are ours from here on, whatever else is wrong with the message.
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(part) + at, sizeof(fd));
      received_.emplace_back(fd);
    }
  }
  if (message.msg_flags & MSG_CTRUNC) descriptors_lost_ = true;
  if (got == 0) return Read::kEnd;
  request_.append(bytes.data(), static_cast<size_t>(got));
  return Read::kSome;
}

void SharePeer::Answer(ShareTokens& tokens) {
  absl::Status status;
  switch (request_[0]) {
    case kGet:
      status = AnswerGet(tokens);
      break;
    case kPut:
      status = AnswerPut(tokens);
      break;
    default:
      status = absl::InvalidArgumentError("a request begins with G (get) or P (put)");
  }
  if (status.ok()) return;
  // A peer that cannot take an answer is cut without one.
  Send(absl::StrCat("\x01", status.message()), -1).IgnoreError();
}

absl::Status SharePeer::AnswerGet(ShareTokens& tokens) {
  if (!received_.empty() || descriptors_lost_) {
    return absl::InvalidArgumentError("a get carries no descriptor; send P to put one");
  }
  const auto token = HandleFromBytes(std::string_view(request_).substr(1));
  std::optional<UniqueFd> shared = tokens.Take(ShareTokens::Way::kGet, *token);
  if (!shared) {
    return absl::NotFoundError(
        "no such token: it is unknown, used, or older than 10 s; call ExportBuffer again");
  }
  return Send(std::string(1, '\0'), shared->get());
}

absl::Status SharePeer::AnswerPut(ShareTokens& tokens) {
  if (received_.empty()) {
    return absl::InvalidArgumentError(
        descriptors_lost_ ? "the server cannot open another descriptor; retry later"
                          : "a put carries one descriptor (SCM_RIGHTS) with the byte P; got none");
  }
  if (received_.size() > 1 || descriptors_lost_) {
    return absl::InvalidArgumentError("a put carries one descriptor; got more");
  }
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
    return absl::InternalError(absl::StrCat("SO_PEERCRED: ", std::strerror(errno)));
  }
  GEMMD_ASSIGN_OR_RETURN(Handle token, tokens.Add(ShareTokens::Way::kPut, std::move(received_[0]),
                                                  absl::StrCat("uid=", peer.uid)));
  return Send(std::string(1, '\0') + ToBytes(token), -1);
}

absl::Status SharePeer::Send(const std::string& bytes, int fd) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  iovec data = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  }
  // The answer is the connection's first data and a few bytes: its buffer has room.
  if (sendmsg(this->fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    return absl::UnavailableError(absl::StrCat("sendmsg: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace gemmd::server
