#include "server/guard/frame_reader.h"

#include <algorithm>

namespace gemmd::guard {
namespace {

// RFC 9113, 6.
constexpr int kData = 0;
constexpr int kHeaders = 1;
constexpr int kResetStream = 3;
constexpr int kSettings = 4;
constexpr int kWindowUpdate = 8;
constexpr int kContinuation = 9;

constexpr int kAck = 0x1;
constexpr int kEndStream = 0x1;

uint32_t BigEndian(const char* bytes, int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

std::string_view Name(Breach breach) {
  switch (breach) {
    case Breach::kNone:
      return "none";
    case Breach::kHeaderBlock:
      return "header_block";
    case Breach::kStreams:
      return "streams";
    case Breach::kControlFrames:
      return "control_frames";
    case Breach::kResets:
      return "resets";
    case Breach::kCalls:
      return "calls";
    case Breach::kUnfinished:
      return "unfinished";
  }
  return "none";
}

Breach FrameReader::Read(std::string_view bytes, Seen& seen) {
  while (!bytes.empty()) {
    if (skip_ > 0) {
      const auto skipped = std::min(skip_, static_cast<int64_t>(bytes.size()));
      skip_ -= skipped;
      bytes.remove_prefix(static_cast<size_t>(skipped));
      continue;
    }
    const size_t copied = std::min(kFrameHeaderBytes - header_bytes_, bytes.size());
    std::copy_n(bytes.data(), copied, header_.data() + header_bytes_);
    header_bytes_ += copied;
    bytes.remove_prefix(copied);
    if (header_bytes_ < kFrameHeaderBytes) break;
    header_bytes_ = 0;
    const char* const at = header_.data();
    const Frame frame{.bytes = BigEndian(at, 3),
                      .type = static_cast<uint8_t>(at[3]),
                      .flags = static_cast<uint8_t>(at[4]),
                      .stream = BigEndian(at + 5, 4) & 0x7fffffffu};
    skip_ = frame.bytes;
    if (const Breach breach = Take(frame, seen); breach != Breach::kNone) return breach;
  }
  return Breach::kNone;
}

Breach FrameReader::Take(const Frame& frame, Seen& seen) {
  switch (frame.type) {
    case kData:
      TakeData(frame, seen);
      return Breach::kNone;
    case kHeaders:
      header_block_bytes_ = 0;
      return TakeHeaders(frame, seen);
    case kContinuation:
      return TakeHeaders(frame, seen);
    case kResetStream:
      ++seen.resets;
      EndStream(frame.stream);
      return Breach::kNone;
    case kWindowUpdate:
      return Breach::kNone;  // as many as a fast reader has use for
    case kSettings:
      if (frame.flags & kAck) settings_acknowledged_ = true;
      ++seen.control_frames;
      return Breach::kNone;
    default:
      ++seen.control_frames;
      return Breach::kNone;
  }
}

Breach FrameReader::TakeHeaders(const Frame& frame, Seen& seen) {
  // With the frame's own header: an empty CONTINUATION is not free.
  header_block_bytes_ += frame.bytes + static_cast<int64_t>(kFrameHeaderBytes);
  if (header_block_bytes_ > kMaxHeaderBlockBytes) return Breach::kHeaderBlock;
  if (frame.type == kContinuation) return Breach::kNone;
  if (frame.stream > last_stream_) {
    last_stream_ = frame.stream;
    ++seen.calls;
    if (!settings_acknowledged_ && ++streams_begun_ > max_streams_) return Breach::kStreams;
    if (counting_ && !(frame.flags & kEndStream)) {
      streams_[frame.stream] = kStreamBytes;
      unfinished_bytes_ += kStreamBytes;
    }
  } else if (frame.flags & kEndStream) {
    EndStream(frame.stream);
  }
  return Breach::kNone;
}

void FrameReader::TakeData(const Frame& frame, Seen& seen) {
  if (frame.flags & kEndStream) return EndStream(frame.stream);
  if (frame.bytes == 0) ++seen.control_frames;
  if (!counting_) return;
  const auto stream = streams_.find(frame.stream);
  if (stream == streams_.end()) return;
  stream->second += frame.bytes;
  unfinished_bytes_ += frame.bytes;
}

void FrameReader::EndStream(uint32_t stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  unfinished_bytes_ -= found->second;
  streams_.erase(found);
}

void FrameReader::StopCounting() {
  counting_ = false;
  streams_ = {};
  unfinished_bytes_ = 0;
}

}  // namespace gemmd::guard
