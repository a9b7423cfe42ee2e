#include "server/engine/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace gemmd::server {

int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

int ReplaceFile(const std::string& path, std::string_view text, const ReplaceOptions& options) {
  // Root's rename would put a file in the place of the machine's /dev/null.
  struct stat there;
  if (lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode) && !S_ISLNK(there.st_mode)) {
    return S_ISDIR(there.st_mode) ? EISDIR : EEXIST;
  }
  const std::string draft = absl::StrCat(path, ".", getpid());
  const int fd =
      open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, options.mode);
  int error = fd < 0 ? errno : WriteAll(fd, text);
  if (error == 0 && options.synced && fsync(fd) != 0) error = errno;
  if (fd >= 0 && close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(draft.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0 && fd >= 0) unlink(draft.c_str());
  return error;
}

}  // namespace gemmd::server
