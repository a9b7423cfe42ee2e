// FrameReader: looks at the frame headers of what an HTTP/2 client sends, before gRPC does, and
// says when it costs more than a call is worth. It skips payloads, so an upload loses nothing, and
// it does not judge whether the bytes are right: gRPC does.

#pragma once

#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "server/guard/frame_walk.h"

namespace gemmd::guard {

// Why a connection is cut.
enum class Breach { kNone, kHeaderBlock, kStreams, kControlFrames, kResets, kCalls, kUnfinished };
inline constexpr int kBreaches = 7;
// A metric's label: "header_block".
std::string_view Name(Breach breach);

// What there was in some bytes, for the budgets of who sent them.
struct Seen {
  int64_t calls = 0;       // streams that began
  int64_t resets = 0;      // RST_STREAM
  int64_t data_bytes = 0;  // with kLeastDataBytes for a thin frame
  int64_t window_updates = 0;
  int64_t control_frames = 0;  // SETTINGS, PING, PRIORITY and their like, trailers, and empty DATA
};

// One connection's bytes, in order. Not thread-safe.
class FrameReader {
 public:
  // HEADERS and the CONTINUATIONs behind it. gRPC 1.51 looks at its own limit, 8 KiB, only when the
  // block is complete (CVE-2023-33953), and takes quadratic time for one long string.
  static constexpr int64_t kMaxHeaderBlockBytes = 64 << 10;
  // What gRPC holds for a call that has begun, about: counted with the bytes of its message.
  static constexpr int64_t kStreamBytes = 16 << 10;
  // What a DATA frame that does not end its request counts for at least: frames of one byte would
  // cost gRPC a thread, and ten bytes of memory each, long before their own came to anything.
  static constexpr int64_t kLeastDataBytes = 1024;

  // `max_streams`: how many streams may begin before the client has acknowledged the server's
  // SETTINGS, which limit them from then on.
  explicit FrameReader(int max_streams) : max_streams_(max_streams) {}

  // The breach in `bytes`, if any; what it read up to there is added to `seen`.
  Breach Read(std::string_view bytes, Seen& seen);

  // Of streams that the client has begun and neither ended nor reset, and that are not answered.
  int64_t unfinished_bytes() const { return unfinished_bytes_; }
  // The server has ended this stream: gRPC forgets it, whether its client has ended it or not.
  void Answered(uint32_t stream) { EndStream(stream); }
  // From now on none is counted.
  void StopCounting();

 private:
  static constexpr int64_t kPrefaceBytes = 24;

  Breach Take(const FrameHeader& frame, Seen& seen);
  Breach TakeHeaders(const FrameHeader& frame, Seen& seen);
  void TakeData(const FrameHeader& frame, Seen& seen);
  void EndStream(uint32_t stream);

  const int max_streams_;
  bool counting_ = true;
  bool settings_acknowledged_ = false;
  int streams_begun_ = 0;  // before that
  uint32_t last_stream_ = 0;
  int64_t header_block_bytes_ = 0;
  absl::flat_hash_map<uint32_t, int64_t> streams_;  // unfinished ones' bytes
  int64_t unfinished_bytes_ = 0;
  FrameWalk walk_{kPrefaceBytes};
};

}  // namespace gemmd::guard
