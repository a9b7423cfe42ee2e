// LogWriter: a bounded queue between the log's callers and a descriptor, and the thread that writes
// it. A reader may stall and a disk may be full: no caller ever waits for either. A line that finds
// no room is dropped and counted; once there is room again, a line tells how many.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/time/time.h"

namespace gemmd::server {

// Thread-safe.
class LogWriter {
 public:
  struct Options {
    int fd = 2;                         // stays the caller's, and open
    size_t max_queued_bytes = 1 << 20;  // some five thousand lines
    // For how long the destructor waits for what is queued.
    absl::Duration patience = absl::Seconds(1);
  };
  // The line that tells of `count` lines dropped. It may be asked for after the writer has gone.
  using DroppedLine = std::function<std::string(int64_t count)>;

  LogWriter(const Options& options, DroppedLine dropped_line);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // `line` has at most 4096 bytes (PIPE_BUF) and one newline, its end. The last quarter of the
  // queue is for urgent lines. What is queued is written in order.
  void Write(std::string_view line, bool urgent);

  // Waits until all that was queued is written. False when that takes longer than `patience`.
  bool Flush(absl::Duration patience);

  // Lines that found no room, or could not be written.
  int64_t dropped() const;

 private:
  struct State;
  // Shared with the thread, which a stalled reader may keep longer than this lives.
  const std::shared_ptr<State> state_;
  const absl::Duration patience_;
  std::thread thread_;
};

// For a last word without a log: writes `text` as soon as `fd` takes it, and gives up after
// `patience`.
void WriteWithin(int fd, std::string_view text, absl::Duration patience);

}  // namespace gemmd::server
