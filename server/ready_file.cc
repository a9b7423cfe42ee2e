#include "server/ready_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/engine/replace_file.h"

namespace gemmd::server {
std::string ReadyText(absl::Span<const std::string> addresses, const std::string& metrics_address) {
  std::string text;
  for (const std::string& address : addresses) absl::StrAppend(&text, address, "\n");
  if (!metrics_address.empty()) absl::StrAppend(&text, "metrics ", metrics_address, "\n");
  return text;
}

absl::Status WriteReadyFile(const std::string& path, const std::string& text) {
  struct stat there;
  const bool exists = lstat(path.c_str(), &there) == 0;
  if (exists && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) {
    return absl::InternalError(
        absl::StrCat("cannot write --ready-file ", path,
                     ": it is a device, a pipe or a link, and would be replaced by a file; name "
                     "another, or give --ready-fd"));
  }
  const int error = ReplaceFile(path, text, {});
  if (error == 0) return absl::OkStatus();
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
