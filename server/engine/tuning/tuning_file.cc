#include "server/engine/tuning/tuning_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/engine/replace_file.h"

namespace gemmd::server {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;

absl::Status Failed(const char* what, const std::string& path, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("tuning file ", path, " cannot be ", what, ": ", std::strerror(error),
                   "; give gemmd a file in a folder that it may write, on a disk with room"));
}

}  // namespace

absl::StatusOr<std::string> ReadTuningFile(const std::string& path) {
  // Without waiting: the path may name a pipe that nobody writes.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) {
    return absl::NotFoundError(absl::StrCat("tuning file ", path, " does not exist"));
  }
  if (fd < 0) return Failed("read", path, errno);
  struct stat about;
  const bool regular = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
  std::string text;
  int error = 0;
  while (regular && text.size() <= kMostBytes) {
    char chunk[1 << 16];
    const ssize_t got = read(fd, chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    text.append(chunk, static_cast<size_t>(got));
  }
  close(fd);
  if (error != 0) return Failed("read", path, error);
  if (regular && text.size() <= kMostBytes) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("tuning file ", path, " is ",
                   regular ? absl::StrCat("larger than ", kMostBytes, " bytes") : "no regular file",
                   "; remove it or name another"));
}

absl::Status WriteTuningFile(const std::string& path, std::string_view text) {
  const int error = ReplaceFile(path, text, {.mode = 0644, .synced = true});
  if (error == 0) return absl::OkStatus();
  return Failed("written", path, error);
}

}  // namespace gemmd::server
