#ifndef GEMMD_TESTS_CLIENT_CPP_RANDOM_BYTES_H_
#define GEMMD_TESTS_CLIENT_CPP_RANDOM_BYTES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

namespace gemmd::client {

inline constexpr int64_t kMiB = 1 << 20;

// The same for the same size.
inline std::string RandomBytes(size_t size) {
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    const uint64_t next = random();
    std::memcpy(bytes.data() + at, &next, std::min(sizeof(next), size - at));
  }
  return bytes;
}

}  // namespace gemmd::client

#endif  // GEMMD_TESTS_CLIENT_CPP_RANDOM_BYTES_H_
