// The listening end of the share socket: binding it, replacing what a dead server left, and
// removing its file at the end.

#ifndef GEMMD_SERVER_ENGINE_SHARE_LISTEN_H_
#define GEMMD_SERVER_ENGINE_SHARE_LISTEN_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "server/engine/share.h"

namespace gemmd::server {

// Move-only. Removes the socket's file when destroyed, if that is still its own.
class ShareListener {
 public:
  // An abstract socket of a random name for an empty path. A file gets mode 0660.
  static absl::StatusOr<ShareListener> Bind(const std::string& path);

  ShareListener(ShareListener&& other) noexcept;
  ShareListener& operator=(ShareListener&&) = delete;
  ~ShareListener();

  int fd() const { return fd_.get(); }
  const std::string& address() const { return address_; }  // as ShareSocket::address()

 private:
  ShareListener(UniqueFd fd, std::string address);

  UniqueFd fd_;
  std::string address_;
  std::string path_;  // empty: abstract, nothing to remove
  dev_t device_ = 0;  // the file's identity: a successor may have put its own socket there
  ino_t inode_ = 0;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_SHARE_LISTEN_H_
