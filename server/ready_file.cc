#include "server/ready_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace gemmd::server {
namespace {

// errno, or 0.
int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

std::string ReadyText(absl::Span<const std::string> addresses, const std::string& metrics_address) {
  std::string text;
  for (const std::string& address : addresses) absl::StrAppend(&text, address, "\n");
  if (!metrics_address.empty()) absl::StrAppend(&text, "metrics ", metrics_address, "\n");
  return text;
}

absl::Status WriteReadyFile(const std::string& path, const std::string& text) {
  const std::string draft = absl::StrCat(path, ".", getpid());
  const int fd = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int error = fd < 0 ? errno : WriteAll(fd, text);
  if (fd >= 0 && close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(draft.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  if (fd >= 0) unlink(draft.c_str());
  return absl::InternalError(absl::StrCat("cannot write --ready-file ", path, ": ",
                                          std::strerror(error),
                                          "; name a file in a folder that gemmd may write"));
}

absl::Status WriteReadyFd(int fd, const std::string& text) {
  if (const int error = WriteAll(fd, text); error != 0) {
    return absl::InternalError(
        absl::StrCat("cannot write to --ready-fd ", fd, ": ", std::strerror(error)));
  }
  close(fd);
  return absl::OkStatus();
}

}  // namespace gemmd::server
