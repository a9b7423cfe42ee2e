#include "client/cli/files/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "status/propagate.h"

namespace gemmd::files {
namespace {

// Names of files that are not whole yet, for RemovePartialFiles. One that finds no room is removed
// by its NewFile alone.
std::atomic<const char*> partial_names[8];

void Remember(const char* name) {
  for (std::atomic<const char*>& slot : partial_names) {
    const char* none = nullptr;
    if (slot.compare_exchange_strong(none, name)) return;
  }
}

void Forget(const char* name) {
  for (std::atomic<const char*>& slot : partial_names) {
    const char* mine = name;
    if (slot.compare_exchange_strong(mine, nullptr)) return;
  }
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "." : path.substr(0, slash + 1);
}

// What `path` leads to. A link may point to a file that is not there yet.
absl::StatusOr<std::string> FollowLinks(std::string path) {
  constexpr int kMostLinks = 40;  // as the kernel
  for (int i = 0; i < kMostLinks; ++i) {
    char target[PATH_MAX];
    const ssize_t length = readlink(path.c_str(), target, sizeof(target));
    if (length < 0 || length == sizeof(target)) return path;  // no link, or a later call says why
    const std::string to(target, length);
    path = to[0] == '/' || path.find('/') == path.npos ? to : absl::StrCat(FolderOf(path), to);
  }
  errno = ELOOP;
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot follow the links of '", path, "'"));
}

std::string PartialName(const std::string& path) {
  return absl::StrCat(path, ".partial-", getpid());
}

}  // namespace

void RemovePartialFiles() {
  for (const std::atomic<const char*>& slot : partial_names) {
    if (const char* name = slot.load(); name != nullptr) unlink(name);
  }
}

absl::StatusOr<NewFile> NewFile::Create(const std::string& path, Existing existing) {
  GEMMD_ASSIGN_OR_RETURN(std::string followed, FollowLinks(path));
  NewFile file;
  file.path_ = followed;
  file.existing_ = existing;
  struct stat there;
  if (stat(file.path_.c_str(), &there) == 0) {
    if (!S_ISREG(there.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat("'", path, "' is not a regular file; write to another name"));
    }
    if (existing == Existing::kKeep) {
      return absl::AlreadyExistsError(absl::StrCat("'", path, "' exists"));
    }
  }
  file.fd_ = open(FolderOf(file.path_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (file.fd_ >= 0) return file;
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
    return file.Failed("create a file for");
  }
  // A file system without nameless files: a run that is killed with SIGKILL leaves this one behind.
  auto partial = std::make_unique<std::string>(PartialName(file.path_));
  file.fd_ = open(partial->c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
  if (file.fd_ < 0) return file.Failed("create a file for");
  file.partial_ = std::move(partial);
  Remember(file.partial_->c_str());
  return file;
}

NewFile& NewFile::operator=(NewFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(existing_, other.existing_);
  std::swap(partial_, other.partial_);
  std::swap(fd_, other.fd_);
  return *this;
}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (partial_ == nullptr) return;
  unlink(partial_->c_str());
  Forget(partial_->c_str());
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
  return existing_ == Existing::kKeep ? LinkWhereNoneIs() : Replace();
}

// Gives the nameless file a name that is free.
absl::Status NewFile::Name(const std::string& name) const {
  const std::string self = absl::StrCat("/proc/self/fd/", fd_);
  if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
    return absl::OkStatus();
  }
  if (errno == EEXIST) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", name, "' exists: it came while this was written"));
  }
  return Failed("name");
}

absl::Status NewFile::LinkWhereNoneIs() {
  if (partial_ == nullptr) return Name(path_);
  // Unlike a rename, a link replaces nothing; the other name goes with this object.
  if (link(partial_->c_str(), path_.c_str()) == 0) return absl::OkStatus();
  if (errno == EEXIST) {
    return absl::AlreadyExistsError(
        absl::StrCat("'", path_, "' exists: it came while this was written"));
  }
  return Failed("name");
}

absl::Status NewFile::Replace() {
  struct stat there;
  const bool replaces = stat(path_.c_str(), &there) == 0;
  if (replaces) {
    // Another's file stays another's where the caller may give files away; else it becomes the
    // caller's, as with any editor that renames.
    const bool kept = fchown(fd_, there.st_uid, there.st_gid) == 0;
    if (fchmod(fd_, there.st_mode & (kept ? 07777 : 0777)) != 0) return Failed("set the mode of");
    if (fsync(fd_) != 0) return Failed("bring to the disk");
  }
  if (partial_ == nullptr) {
    // A nameless file cannot take a name that is in use, so it gets one and is then moved.
    auto partial = std::make_unique<std::string>(PartialName(path_));
    Remember(partial->c_str());
    if (absl::Status named = Name(*partial); !named.ok()) {
      Forget(partial->c_str());
      return named;
    }
    partial_ = std::move(partial);
  }
  if (std::rename(partial_->c_str(), path_.c_str()) != 0) return Failed("move into place");
  Forget(partial_->c_str());
  partial_.reset();
  if (!replaces) return absl::OkStatus();
  // The rename, too. Where folders cannot be synced, the file is there all the same.
  const int folder = open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return absl::OkStatus();
  fsync(folder);
  close(folder);
  return absl::OkStatus();
}

}  // namespace gemmd::files
