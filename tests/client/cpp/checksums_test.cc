#include "client/cpp/internal/transfers/checksums.h"

#include <string>

#include "client/cpp/internal/transfers/crc32c.h"
#include "gtest/gtest.h"

namespace gemmd::client {
namespace {

constexpr int64_t kChunk = 256 << 10;

std::string Bytes(int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

TEST(ChecksumsTest, AreThoseOfTheChunksInOrderByOneThreadOrTwo) {
  for (int64_t size : {int64_t{1}, kChunk, kChunk + 1, 8 * kChunk, 37 * kChunk + 5}) {
    const std::string bytes = Bytes(size);
    for (int threads : {0, 1, 2}) {
      Checksums checksums(bytes, kChunk, threads);
      for (int64_t at = 0; at < size; at += kChunk) {
        EXPECT_EQ(checksums.Next(), Crc32c(absl::string_view(bytes).substr(at, kChunk)))
            << size << " bytes at " << at << " by " << threads;
      }
    }
  }
}

TEST(ChecksumsTest, MayBeGivenUpHalfway) {
  const std::string bytes = Bytes(40 * kChunk);
  Checksums(bytes, kChunk, 2);
  Checksums checksums(bytes, kChunk, 2);
  EXPECT_EQ(checksums.Next(), Crc32c(absl::string_view(bytes).substr(0, kChunk)));
}

}  // namespace
}  // namespace gemmd::client
