// ShareSocket: where same-host clients exchange file descriptors with the server, since gRPC cannot
// carry them. A Unix socket with two one-shot exchanges, both bound to tokens that only the gRPC
// side gives out or redeems:
//
//   get  'G' + 16-byte token   ->  0 + the descriptor (SCM_RIGHTS), or 1 + a message
//   put  'P' + the descriptor  ->  0 + a 16-byte token, or 1 + a message
//
// Tokens are single-use and die after 10 s, by the Clock, and their descriptors are closed then. At
// most 64 peers are served at once, each for at most 2 s, or 100 ms while all 64 places are taken:
// a peer that stalls does not block another. Of the tokens of one way a tenant, or a user id at the
// socket, has a fair share: with n that hold some, a place is free for another until each has one
// part in n + 1. Of a process' descriptors all this takes three eighths at most.

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/engine/clock.h"
#include "server/engine/config.h"
#include "server/engine/observe/log.h"
#include "server/engine/sessions/handle.h"

namespace gemmd::server {

// Owns a file descriptor; closes it on destruction.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

class ShareSocket {
 public:
  // Tokens waiting, each way: puts come from anyone who can connect and must not crowd out what
  // sessions offer.
  static constexpr int kMaxPending = 1024;
  static constexpr absl::Duration kTokenLife = absl::Seconds(10);
  static constexpr int kMaxPeers = 64;
  static constexpr absl::Duration kPeerLife = absl::Seconds(2);
  static constexpr absl::Duration kPeerLifeWhenFull = absl::Milliseconds(100);

  // FAILED_PRECONDITION when another server listens at the path or something else is there; a
  // socket left by a dead server is replaced. `clock` and `log` must outlive the socket.
  static absl::StatusOr<std::unique_ptr<ShareSocket>> Start(const ShareConfig& config,
                                                            const Clock& clock, Log& log);
  ~ShareSocket();  // stops the thread, removes the socket's file

  // "unix:/run/gemmd/share.sock" or "unix-abstract:gemmd-3f...": what ServerInfo tells clients.
  const std::string& address() const { return address_; }

  // Offers `fd` (duplicated here) to whoever presents the token. RESOURCE_EXHAUSTED when `owner`,
  // the tenant, has its share of kMaxPending.
  // With writable false the descriptor handed over is reopened read-only and cannot be mapped for
  // writing; the file's mode becomes 0400, so that reopening it through /proc needs a chmod by its
  // owner. It stops mistakes and other users, not a process with the server's own user id.
  absl::StatusOr<Handle> Offer(int fd, bool writable, std::string_view owner);
  // The descriptor that a client put under `token`. NOT_FOUND for a token unknown, used or older
  // than 10 s.
  absl::StatusOr<UniqueFd> Redeem(const Handle& token);

 private:
  ShareSocket();
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace gemmd::server
