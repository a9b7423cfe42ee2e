#ifndef GEMMD_TESTS_CLIENT_CPP_RANDOM_BYTES_H_
#define GEMMD_TESTS_CLIENT_CPP_RANDOM_BYTES_H_

#include <cstdint>
#include <random>
#include <string>

namespace gemmd::client {

inline constexpr int64_t kMiB = 1 << 20;

// The same for the same size.
inline std::string RandomBytes(size_t size) {
  std::mt19937_64 random(size);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

}  // namespace gemmd::client

#endif  // GEMMD_TESTS_CLIENT_CPP_RANDOM_BYTES_H_
