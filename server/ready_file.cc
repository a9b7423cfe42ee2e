#include "server/ready_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace gemmd::server {

std::string ReadyText(absl::Span<const std::string> addresses, const std::string& metrics_address) {
  std::string text;
  for (const std::string& address : addresses) absl::StrAppend(&text, address, "\n");
  if (!metrics_address.empty()) absl::StrAppend(&text, "metrics ", metrics_address, "\n");
  return text;
}

absl::Status WriteReadyFile(const std::string& path, const std::string& text) {
  const std::string draft = absl::StrCat(path, ".", getpid());
  std::ofstream out(draft);
  out << text;
  out.close();
  if (out.good() && std::rename(draft.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path));
}

absl::Status WriteReadyFd(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return absl::InternalError(
          absl::StrCat("cannot write to --ready-fd ", fd, ": ", std::strerror(errno)));
    }
    done += static_cast<size_t>(written);
  }
  close(fd);
  return absl::OkStatus();
}

}  // namespace gemmd::server
