// InlineMemory: memory shared with a daemon on this host, through which the data of a program's
// Writes and Reads goes. In messages half a megabyte each way is copied eight times and passes two
// sockets, whose buffers hold 200 KiB; here it is copied once on each side.

#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/internal/transfers/staging.h"
#include "client/cpp/options.h"
#include "client/cpp/types.h"

namespace gemmd::client {

class SessionCore;

// A session's. Thread-safe. The memory is one buffer, made when it is first asked for, of four
// times what was; where that becomes too little, one of twice its size takes its place.
class InlineMemory {
  struct Arena;

 public:
  static constexpr int64_t kLeastBytes = 1 << 20;
  static constexpr int64_t kMostBytes = 16 << 20;
  // Each thing in it begins at a multiple of 256.
  static constexpr int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

  // What one program has of it, until it and whoever reads its outputs let go. May outlive the
  // session.
  class Block {
   public:
    Block(std::shared_ptr<Arena> arena, int64_t offset) : arena_(std::move(arena)), at_(offset) {}
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    char* data() const;
    const Handle& buffer() const;
    int64_t offset_bytes() const { return at_; }  // in the buffer

   private:
    friend class InlineMemory;
    const std::shared_ptr<Arena> arena_;
    const int64_t at_;
  };

  explicit InlineMemory(const SessionCore& session) : session_(session) {}

  // FAILED_PRECONDITION where nothing is shared, RESOURCE_EXHAUSTED without room, and whatever
  // making the buffer fails with, within the caller's time for it; once that was a refusal, or it
  // is turned off, always the same.
  absl::StatusOr<std::shared_ptr<Block>> Take(int64_t bytes, const CallOptions& options);
  // The daemon may still read and write the block, which its program was not answered for: the
  // buffer it lies in is given up as a whole, and the next Take makes another.
  void GiveUp(const Block& block);
  // Programs cannot use it, for the reason given.
  void TurnOff(const absl::Status& why);
  // Deletes the buffer; false when there is none.
  bool Drop();

 private:
  absl::StatusOr<std::shared_ptr<Arena>> Make(int64_t bytes, const CallOptions& options);
  // Puts an arena with room for `bytes` in the place of the one there is.
  absl::Status Grow(int64_t bytes, const CallOptions& options) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const SessionCore& session_;  // its owner
  absl::Mutex mu_;
  std::shared_ptr<Arena> arena_ ABSL_GUARDED_BY(mu_);  // shared with blocks
  int64_t most_ ABSL_GUARDED_BY(mu_) = kMostBytes;     // less once the server has refused more
  absl::Status off_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd::client
