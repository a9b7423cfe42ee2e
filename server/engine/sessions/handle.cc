#include "server/engine/sessions/handle.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gemmd::server {
namespace {

// One system call costs about as much as 2 KiB of random bytes, so each thread draws them in bulk.
class RandomPool {
 public:
  Handle Take() {
    if (used_ == bytes_.size()) Fill();
    uint8_t* next = bytes_.data() + used_;
    Handle handle;
    std::memcpy(&handle.high, next, sizeof(handle.high));
    std::memcpy(&handle.low, next + sizeof(handle.high), sizeof(handle.low));
    // A handle stays out of memory once it is deleted elsewhere: a leak of the pool tells no past
    // ones.
    std::memset(next, 0, kHandleBytes);
    used_ += kHandleBytes;
    return handle;
  }

 private:
  void Fill() {
    size_t filled = 0;
    while (filled < bytes_.size()) {
      const ssize_t got = getrandom(bytes_.data() + filled, bytes_.size() - filled, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        // Guessable handles would open every tenant's buffers: better no server at all.
        std::perror("getrandom");
        std::abort();
      }
      filled += static_cast<size_t>(got);
    }
    used_ = 0;
  }

  std::array<uint8_t, 256 * kHandleBytes> bytes_;
  size_t used_ = bytes_.size();
};

// Big-endian, so that the bytes in hex begin as Redacted() does.
void AppendBytes(uint64_t word, std::string& out) {
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(word >> shift));
}

uint64_t WordFromBytes(std::string_view bytes) {
  uint64_t word = 0;
  for (const char byte : bytes) word = word << 8 | static_cast<uint8_t>(byte);
  return word;
}

}  // namespace

Handle NewHandle() {
  thread_local RandomPool pool;
  return pool.Take();
}

std::string ToBytes(const Handle& handle) {
  std::string bytes;
  bytes.reserve(kHandleBytes);
  AppendBytes(handle.high, bytes);
  AppendBytes(handle.low, bytes);
  return bytes;
}

std::optional<Handle> HandleFromBytes(std::string_view bytes) {
  if (bytes.size() != kHandleBytes) return std::nullopt;
  return Handle{WordFromBytes(bytes.substr(0, 8)), WordFromBytes(bytes.substr(8))};
}

std::string Redacted(const Handle& handle) {
  char digits[9];
  std::snprintf(digits, sizeof(digits), "%08x", static_cast<unsigned>(handle.high >> 32));
  return digits;
}

}  // namespace gemmd::server
