// FrameWalk: from one HTTP/2 frame header to the next in bytes that come in pieces; payloads are
// skipped.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gemmd::guard {

// RFC 9113, 4.1 and 6.
enum FrameType : int {
  kData = 0,
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kWindowUpdate = 8,
  kContinuation = 9,
};
inline constexpr int kAck = 0x1;
inline constexpr int kEndStream = 0x1;

struct FrameHeader {
  static constexpr size_t kBytes = 9;

  int64_t bytes = 0;  // of the payload
  int type = 0;
  int flags = 0;
  uint32_t stream = 0;
};

// One side of one connection. Not thread-safe.
class FrameWalk {
 public:
  // The bytes before the first frame: a client begins with a preface.
  explicit FrameWalk(int64_t before) : skip_(before) {}

  // The next header that ends in `bytes`, of which everything up to its end is taken off.
  std::optional<FrameHeader> Next(std::string_view& bytes);

 private:
  std::array<char, FrameHeader::kBytes> header_ = {};
  size_t header_bytes_ = 0;  // of it, read so far
  int64_t skip_;             // before the next header
};

}  // namespace gemmd::guard
