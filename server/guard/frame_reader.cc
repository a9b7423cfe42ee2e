#include "server/guard/frame_reader.h"

#include <algorithm>
#include <optional>

namespace gemmd::guard {

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
  while (const std::optional<FrameHeader> frame = walk_.Next(bytes)) {
    if (const Breach breach = Take(*frame, seen); breach != Breach::kNone) return breach;
  }
  return Breach::kNone;
}

Breach FrameReader::Take(const FrameHeader& frame, Seen& seen) {
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
      ++seen.window_updates;
      return Breach::kNone;
    case kSettings:
      if (frame.flags & kAck) settings_acknowledged_ = true;
      ++seen.control_frames;
      return Breach::kNone;
    default:
      ++seen.control_frames;
      return Breach::kNone;
  }
}

Breach FrameReader::TakeHeaders(const FrameHeader& frame, Seen& seen) {
  // With the frame's own header: an empty CONTINUATION is not free.
  header_block_bytes_ += frame.bytes + static_cast<int64_t>(FrameHeader::kBytes);
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
    return Breach::kNone;
  }
  ++seen.control_frames;  // trailers, which no client of gRPC's sends
  if (frame.flags & kEndStream) EndStream(frame.stream);
  return Breach::kNone;
}

void FrameReader::TakeData(const FrameHeader& frame, Seen& seen) {
  const bool ends = frame.flags & kEndStream;
  const int64_t bytes = ends ? frame.bytes : std::max(frame.bytes, kLeastDataBytes);
  seen.data_bytes += bytes;
  if (ends) return EndStream(frame.stream);
  if (frame.bytes == 0) ++seen.control_frames;
  if (!counting_) return;
  const auto stream = streams_.find(frame.stream);
  if (stream == streams_.end()) return;
  stream->second += bytes;
  unfinished_bytes_ += bytes;
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
