#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

namespace gemmd::client {

inline constexpr int64_t kMiB = 1 << 20;

// The same for the same size. A long one repeats itself after a prime number of bytes: no two of
// its chunks are alike, and a sanitizer's build has it in milliseconds.
inline std::string RandomBytes(size_t size) {
  constexpr size_t kPeriod = 1'000'003;
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  const size_t fresh = std::min(size, kPeriod);
  for (size_t at = 0; at < fresh; at += sizeof(uint64_t)) {
    const uint64_t next = random();
    std::memcpy(bytes.data() + at, &next, std::min(sizeof(next), fresh - at));
  }
  for (size_t at = fresh; at < size; at += kPeriod) {
    std::memcpy(bytes.data() + at, bytes.data(), std::min(kPeriod, size - at));
  }
  return bytes;
}

}  // namespace gemmd::client
