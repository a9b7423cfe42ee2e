#include "server/guard/frame_walk.h"

#include <algorithm>

namespace gemmd::guard {
namespace {

uint32_t BigEndian(const char* bytes, int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

std::optional<FrameHeader> FrameWalk::Next(std::string_view& bytes) {
  const auto skipped = std::min(skip_, static_cast<int64_t>(bytes.size()));
  skip_ -= skipped;
  bytes.remove_prefix(static_cast<size_t>(skipped));
  const size_t copied = std::min(FrameHeader::kBytes - header_bytes_, bytes.size());
  std::copy_n(bytes.data(), copied, header_.data() + header_bytes_);
  header_bytes_ += copied;
  bytes.remove_prefix(copied);
  if (header_bytes_ < FrameHeader::kBytes) return std::nullopt;
  header_bytes_ = 0;
  const char* const at = header_.data();
  const FrameHeader frame{.bytes = BigEndian(at, 3),
                          .type = static_cast<uint8_t>(at[3]),
                          .flags = static_cast<uint8_t>(at[4]),
                          .stream = BigEndian(at + 5, 4) & 0x7fffffffu};
  skip_ = frame.bytes;
  return frame;
}

}  // namespace gemmd::guard
