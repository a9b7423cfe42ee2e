// The listening end of a Unix socket: binding it, replacing what a dead server left, and removing
// its file at the end.

#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "server/engine/share/share.h"

namespace gemmd::server {

struct UnixListenerOptions {
  std::string path;  // a file; or
  std::string
      abstract_name;   // without the leading NUL. Neither: an abstract socket of a random name
  mode_t mode = 0660;  // of the file, from its first moment on
  std::string field;   // of the config, which messages begin with: "share.socket_path"
};

// Move-only. Removes the socket's file when destroyed, if that is still its own.
class UnixListener {
 public:
  // FAILED_PRECONDITION when something else is there, UNAVAILABLE when the system refuses.
  static absl::StatusOr<UnixListener> Bind(const UnixListenerOptions& options);

  UnixListener(UnixListener&& other) noexcept;
  UnixListener& operator=(UnixListener&&) = delete;
  ~UnixListener();

  int fd() const { return fd_.get(); }
  const std::string& address() const { return address_; }  // "unix:/path", "unix-abstract:name"

 private:
  UnixListener(UniqueFd fd, std::string address);

  UniqueFd fd_;
  std::string address_;
  std::string path_;  // empty: abstract, nothing to remove
  dev_t device_ = 0;  // the file's identity: a successor may have put its own socket there
  ino_t inode_ = 0;
};

}  // namespace gemmd::server
