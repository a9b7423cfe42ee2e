#include "server/engine/share/share_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd::server {

absl::StatusOr<UniqueFd> WriteRecord(std::string_view record) {
  UniqueFd fd(memfd_create("gemmd-record", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (fd.valid() &&
      write(fd.get(), record.data(), record.size()) == static_cast<ssize_t>(record.size()) &&
      fcntl(fd.get(), F_ADD_SEALS, kSeals) == 0) {
    return fd;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "a memfd of ", record.size(), " bytes: ", std::strerror(errno), "; retry later"));
}

absl::StatusOr<std::string> ReadRecord(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the descriptor ",
        seals < 0 ? "is not a memfd that allows seals" : "is not sealed against shrinking",
        "; put the message into a memfd with MFD_ALLOW_SEALING and add F_SEAL_SHRINK"));
  }
  struct stat info = {};
  if (fstat(fd, &info) != 0 || info.st_size > static_cast<off_t>(kMaxRecordBytes)) {
    return absl::FailedPreconditionError(absl::StrCat("the memfd has ", info.st_size,
                                                      " bytes, limit ", kMaxRecordBytes,
                                                      "; put the message alone into it"));
  }
  std::string record(static_cast<size_t>(info.st_size), '\0');
  const ssize_t got = pread(fd, record.data(), record.size(), 0);
  if (got != static_cast<ssize_t>(record.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("reading the memfd gave ", got, " of ", record.size(), " bytes"));
  }
  return record;
}

}  // namespace gemmd::server
