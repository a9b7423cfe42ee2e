#include "client/cpp/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmd::client {
namespace {

absl::Status SystemError(absl::string_view what, int64_t size_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("shared memory of ", size_bytes, " bytes: ", what, ": ", std::strerror(errno)));
}

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_bytes_));
  if (fd_ >= 0) close(fd_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      fd_(std::exchange(other.fd_, -1)),
      writable_(other.writable_) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(fd_, other.fd_);
  std::swap(writable_, other.writable_);
  return *this;
}

absl::StatusOr<SharedMemory> SharedMemory::Create(int64_t size_bytes) {
  if (size_bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory of ", size_bytes, " bytes; at least 1 is needed"));
  }
  const int fd = memfd_create("gemmd-client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return SystemError("memfd_create", size_bytes);
  if (ftruncate(fd, size_bytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    const absl::Status status = SystemError("ftruncate or seal", size_bytes);
    close(fd);
    return status;
  }
  return Adopt(fd, size_bytes, /*writable=*/true);
}

absl::StatusOr<SharedMemory> SharedMemory::Adopt(int fd, int64_t size_bytes, bool writable) {
  SharedMemory memory;
  memory.fd_ = fd;  // closed on every way out from here
  memory.writable_ = writable;
  struct stat file = {};
  if (fstat(fd, &file) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor ", fd, " is none to map: ", std::strerror(errno)));
  }
  if (size_bytes <= 0 || file.st_size < size_bytes) {
    return absl::FailedPreconditionError(absl::StrCat("the descriptor holds ", file.st_size,
                                                      " bytes; ", size_bytes, " were asked for"));
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::FailedPreconditionError(
        "the descriptor is no memfd sealed against shrinking; add F_SEAL_SHRINK");
  }
  void* data = mmap(nullptr, static_cast<size_t>(size_bytes),
                    writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return SystemError("mmap", size_bytes);
  memory.data_ = static_cast<char*>(data);
  memory.size_bytes_ = size_bytes;
  return memory;
}

}  // namespace gemmd::client
