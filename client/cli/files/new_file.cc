#include "client/cli/files/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd::files {

absl::StatusOr<NewFile> NewFile::Create(const std::string& path) {
  NewFile file;
  file.path_ = path;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  file.fd_ = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (file.fd_ >= 0) return file;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
    return file.Failed("create a file for");
  }
  // A file system without nameless files: a killed run may leave this one behind.
  const std::string partial = absl::StrCat(path, ".partial-", getpid());
  file.fd_ = open(partial.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
  if (file.fd_ < 0) return file.Failed("create a file for");
  file.partial_ = partial;
  return file;
}

NewFile& NewFile::operator=(NewFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(partial_, other.partial_);
  std::swap(fd_, other.fd_);
  return *this;
}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!partial_.empty()) unlink(partial_.c_str());
}

absl::Status NewFile::Failed(absl::string_view what) const {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " '", path_, "'"));
}

absl::Status NewFile::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write to");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status NewFile::Commit() {
  if (partial_.empty()) {
    // A nameless file can only be linked to a name that is free, so it gets one and is then moved
    // over the old file.
    const std::string name = absl::StrCat(path_, ".partial-", getpid());
    const std::string self = absl::StrCat("/proc/self/fd/", fd_);
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return Failed("name");
    }
    partial_ = name;
  }
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) return Failed("move into place");
  partial_.clear();
  return absl::OkStatus();
}

}  // namespace gemmd::files
