#include "kernels/cpu/memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/stream_copy.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr size_t kAlignment = 256;           // what Memory promises
constexpr int64_t kHeapMaxBytes = 64 << 10;  // above this a mapping is as cheap, and goes back
constexpr int64_t kHugePageBytes = 2 << 20;  // from four of these on, huge pages save the faults
constexpr int64_t kStreamedBytes = 8 << 20;  // more than a core's own cache holds: filled past it

class CpuMemory final : public Memory {
 public:
  enum class Origin { kHeap, kMapping };

  CpuMemory(Budget& budget, Origin origin, MemoryKind kind, std::byte* address, int64_t size_bytes,
            int fd)
      : budget_(budget),
        origin_(origin),
        kind_(kind),
        address_(address),
        size_bytes_(size_bytes),
        fd_(fd) {}

  ~CpuMemory() override {
    if (origin_ == Origin::kHeap) {
      std::free(address_);
    } else {
      ::munmap(address_, static_cast<size_t>(size_bytes_));
    }
    if (fd_ >= 0) ::close(fd_);
    budget_.Return(size_bytes_);
  }

  int64_t size_bytes() const override { return size_bytes_; }
  MemoryKind kind() const override { return kind_; }
  std::byte* address() const override { return address_; }
  int shared_fd() const override { return fd_; }
  absl::StatusOr<DeviceHandle> Share() const override {
    return absl::FailedPreconditionError(
        "host memory has no CUDA IPC handle; share it by its memfd, as host shared memory");
  }

  absl::Status Gather(int64_t offset_bytes, Sources sources) override {
    size_t bytes = 0;
    for (const auto& source : sources) bytes += source.size();
    if (absl::Status status = CheckRange(offset_bytes, bytes); !status.ok()) return status;
    std::byte* to = address_ + offset_bytes;
    for (const auto& source : sources) {
      if (source.empty()) continue;
      if (size_bytes_ >= kStreamedBytes) {
        StreamCopy(to, source.data(), source.size());
      } else {
        std::memcpy(to, source.data(), source.size());
      }
      to += source.size();
    }
    return absl::OkStatus();
  }

  absl::Status CopyOut(int64_t offset_bytes, absl::Span<std::byte> target) const override {
    if (absl::Status status = CheckRange(offset_bytes, target.size()); !status.ok()) return status;
    if (!target.empty()) std::memcpy(target.data(), address_ + offset_bytes, target.size());
    return absl::OkStatus();
  }

 private:
  absl::Status CheckRange(int64_t offset_bytes, size_t length) const {
    if (offset_bytes >= 0 && offset_bytes <= size_bytes_ &&
        length <= static_cast<uint64_t>(size_bytes_ - offset_bytes)) {
      return absl::OkStatus();
    }
    return absl::OutOfRangeError(absl::StrCat(length, " bytes at offset ", offset_bytes,
                                              " lie outside the allocation of ", size_bytes_,
                                              " bytes; stay inside it"));
  }

  Budget& budget_;
  const Origin origin_;
  const MemoryKind kind_;
  std::byte* const address_;
  const int64_t size_bytes_;
  const int fd_;  // owned; -1 for kDevice
};

absl::Status NoMemory(absl::string_view what, int64_t size_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " of ", size_bytes, " bytes failed: ", std::strerror(errno), "; free memory first"));
}

absl::StatusOr<std::unique_ptr<Memory>> Map(Budget& budget, MemoryKind kind, int64_t size_bytes,
                                            int fd) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* address =
      ::mmap(nullptr, static_cast<size_t>(size_bytes), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (address == MAP_FAILED) return NoMemory("mapping", size_bytes);
  if (fd < 0 && size_bytes >= 4 * kHugePageBytes) {
    ::madvise(address, static_cast<size_t>(size_bytes), MADV_HUGEPAGE);  // a hint: may be refused
  }
  return std::make_unique<CpuMemory>(budget, CpuMemory::Origin::kMapping, kind,
                                     static_cast<std::byte*>(address), size_bytes, fd);
}

absl::StatusOr<std::unique_ptr<Memory>> AllocateDevice(Budget& budget, int64_t size_bytes) {
  if (size_bytes > kHeapMaxBytes) return Map(budget, MemoryKind::kDevice, size_bytes, -1);
  const size_t rounded =
      (static_cast<size_t>(size_bytes) + kAlignment - 1) / kAlignment * kAlignment;
  void* address = std::aligned_alloc(kAlignment, rounded);
  if (address == nullptr) return NoMemory("allocation", size_bytes);
  std::memset(address, 0, rounded);
  return std::make_unique<CpuMemory>(budget, CpuMemory::Origin::kHeap, MemoryKind::kDevice,
                                     static_cast<std::byte*>(address), size_bytes, -1);
}

absl::StatusOr<std::unique_ptr<Memory>> AllocateShared(Budget& budget, int64_t size_bytes) {
  const int fd = ::memfd_create("gemmd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return NoMemory("memfd", size_bytes);
  absl::Cleanup close_fd = [fd] { ::close(fd); };
  if (::ftruncate(fd, size_bytes) != 0) return NoMemory("memfd", size_bytes);
  // SHRINK: nobody truncates it under a kernel. GROW: it stays what was accounted for. SEAL: a
  // client cannot add F_SEAL_WRITE later and stop another one from mapping it.
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return NoMemory("sealing a memfd", size_bytes);
  }
  auto memory = Map(budget, MemoryKind::kHostShared, size_bytes, fd);
  if (memory.ok()) std::move(close_fd).Cancel();
  return memory;
}

absl::Status CheckImport(int fd, int64_t size_bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "descriptor ", fd,
        seals < 0 ? " is not a memfd that allows seals" : " is not sealed against shrinking",
        "; create it with MFD_ALLOW_SEALING and add F_SEAL_SHRINK"));
  }
  if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) {
    return absl::FailedPreconditionError(
        "the memfd is sealed against writing; import one without F_SEAL_WRITE");
  }
  struct statfs system = {};
  if (::fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    // A huge-page file raises SIGBUS when its pool runs dry, after every check here has passed.
    return absl::FailedPreconditionError(
        "the memfd is not on tmpfs (huge pages?); create it without MFD_HUGETLB");
  }
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || info.st_size < size_bytes) {
    return absl::FailedPreconditionError(absl::StrCat("the memfd has ", info.st_size,
                                                      " bytes, fewer than the ", size_bytes,
                                                      " to import; ftruncate it first"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Budget::Take(int64_t bytes) {
  int64_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_bytes_ - used) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "size_bytes=", bytes, " exceeds what is free on ", device_, ": ", used, " of ",
          limit_bytes_, " bytes are in use; delete buffers or raise the device's memory_bytes"));
    }
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Memory>> AllocateMemory(Budget& budget, int64_t size_bytes,
                                                       MemoryKind kind) {
  if (size_bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("size_bytes=", size_bytes, " is not positive; allocate at least 1 byte"));
  }
  if (kind == MemoryKind::kDeviceShared || kind == MemoryKind::kDeviceImported) {
    return absl::UnimplementedError(
        "a CPU has no device memory that processes share by CUDA IPC; use host shared memory, "
        "which its kernels work on directly");
  }
  if (absl::Status status = budget.Take(size_bytes); !status.ok()) return status;
  auto memory = kind == MemoryKind::kDevice ? AllocateDevice(budget, size_bytes)
                                            : AllocateShared(budget, size_bytes);
  if (!memory.ok()) budget.Return(size_bytes);
  return memory;
}

absl::StatusOr<std::unique_ptr<Memory>> ImportMemory(Budget& budget, int fd, int64_t size_bytes) {
  if (size_bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("size_bytes=", size_bytes, " is not positive; import at least 1 byte"));
  }
  if (absl::Status status = CheckImport(fd, size_bytes); !status.ok()) return status;
  if (absl::Status status = budget.Take(size_bytes); !status.ok()) return status;
  absl::Cleanup give_back = [&] { budget.Return(size_bytes); };
  const int own_fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own_fd < 0) return NoMemory("duplicating the descriptor", size_bytes);
  auto memory = Map(budget, MemoryKind::kHostShared, size_bytes, own_fd);
  if (!memory.ok()) {
    ::close(own_fd);
    return memory;
  }
  std::move(give_back).Cancel();
  return memory;
}

}  // namespace gemmd::kernels::cpu
