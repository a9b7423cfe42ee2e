// Relay: moves bytes between a caller's memory and a device's buffer through the windows of a
// staging buffer. Threads copy between caller and windows, grain after grain, while the device
// copies between other windows and the buffer.

#pragma once

#include <array>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cpp/internal/connect/buffer_state.h"
#include "client/cpp/transfer.h"

namespace gemmd::client {

// One transfer; its owner has the staging buffer for itself meanwhile.
class Relay {
 public:
  // A device copies 4 MiB in 80 us, and threads fill them in as much; an Execute is answered 450 to
  // 600 us after it was sent (an H200). So most windows are at the device and the others here.
  static constexpr int kWindows = 8;
  static constexpr int64_t kStagingBytes = kWindows * (4 << 20);
  // Copies of 4 MiB are done 84 to 93 us after one another where a long one takes 82 us for as
  // much. So those of a long transfer are twice as long: 256 MiB at 42.9 GB/s instead of 41.0. A
  // short one would wait longer for its first.
  static constexpr int64_t kLongBytes = 128 << 20;
  static constexpr int64_t kLongStagingBytes = 2 * kStagingBytes;
  // What suits a transfer of `bytes`; it can do with kStagingBytes.
  static constexpr int64_t StagingBytesFor(int64_t bytes) {
    return bytes < kLongBytes ? kStagingBytes : kLongStagingBytes;
  }

  struct Ends {
    const Buffer::State& buffer;
    int64_t offset_bytes;      // in buffer
    const Handle& staging;     // of kStagingBytes or more
    absl::Span<char> windows;  // all of it, mapped here
  };

  Relay(const Ends& ends, const TransferOptions& options);
  // Nothing may still use the windows when the next transfer gets them: waits for copies.
  ~Relay() ABSL_LOCKS_EXCLUDED(mu_);

  // Once.
  absl::Status Upload(absl::Span<const char> source);
  absl::Status Download(absl::Span<char> target);

 private:
  // A piece of the transfer is as long as a window, and has window piece % kWindows.
  struct Window {
    int64_t piece = -1;  // whose turn it is on this side; -1: the device's
    int64_t left = 0;    // bytes of it that are to be copied
  };

  void Begin(int64_t size);
  absl::Status Run() ABSL_LOCKS_EXCLUDED(mu_);
  // What each thread does; `report` for the caller's.
  void Work(bool report) ABSL_LOCKS_EXCLUDED(mu_);
  // Where the next grain begins, once its window is this side's; -1 at the end or after a failure.
  int64_t TakeGrain() ABSL_LOCKS_EXCLUDED(mu_);
  void CopyGrain(int64_t at, int64_t bytes);
  // True for the last of its piece.
  bool FinishGrain(int64_t at, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Starts the device's Copy of a piece, unless the transfer ends before it or has failed.
  void Send(int64_t piece) ABSL_LOCKS_EXCLUDED(mu_);
  void Sent(int64_t piece, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void GiveTurn(int64_t piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t BytesOf(int64_t piece) const;

  const Ends ends_;
  const TransferOptions& options_;
  const absl::Time deadline_;

  // Set before the first thread and Copy.
  const char* source_ = nullptr;  // of an upload
  char* target_ = nullptr;        // of a download
  int64_t size_ = 0;
  int64_t window_bytes_ = 0;

  absl::Mutex mu_;
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;  // where the next grain begins
  int64_t done_ ABSL_GUARDED_BY(mu_) = 0;  // bytes copied on this side
  int copies_ ABSL_GUARDED_BY(mu_) = 0;    // under way at the device
  std::array<Window, kWindows> windows_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd::client
