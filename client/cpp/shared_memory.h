// Memory that can be handed to a daemon on the same host: a memfd sealed against shrinking and
// growing, mapped here.
//
//   absl::StatusOr<SharedMemory> memory = SharedMemory::Create(bytes);
//   FillIn(memory->span());
//   absl::StatusOr<Buffer> x = session.ImportBuffer(*std::move(memory), {.dtype = ..., .shape =
//   ...});

#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace gemmd::client {

// Move-only; unmaps and closes the descriptor on destruction. Another process that has it keeps it.
class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  // Zeroed memory of its own. `size_bytes` > 0; RESOURCE_EXHAUSTED when the kernel refuses.
  static absl::StatusOr<SharedMemory> Create(int64_t size_bytes);
  // Takes `fd` over and maps its first `size_bytes`. FAILED_PRECONDITION unless it is sealed
  // against shrinking (a truncated one would kill whoever reads it) and that long.
  static absl::StatusOr<SharedMemory> Adopt(int fd, int64_t size_bytes, bool writable);

  absl::Span<char> span() const { return {data_, static_cast<size_t>(size_bytes_)}; }
  int64_t size_bytes() const { return size_bytes_; }
  bool writable() const { return writable_; }
  int fd() const { return fd_; }

 private:
  char* data_ = nullptr;
  int64_t size_bytes_ = 0;
  int fd_ = -1;
  bool writable_ = false;
};

}  // namespace gemmd::client
