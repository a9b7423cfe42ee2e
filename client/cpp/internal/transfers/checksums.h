// The CRC32C of each chunk of an upload, taken by a second thread while the chunk before is sent:
// in turns with it, reading the bytes from memory would add a third to the time of sending them.

#pragma once

#include <array>
#include <cstdint>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace gemmd::client {

// For one thread to ask.
class Checksums {
 public:
  // `data` outlives this. Without a second thread for fewer than kAhead chunks, where
  // CopyThreads(data.size(), threads) is 1, and where none is to be had.
  Checksums(absl::string_view data, int64_t chunk_bytes, int threads);
  // Ends the thread, asked for all or not.
  ~Checksums() ABSL_LOCKS_EXCLUDED(mu_);
  Checksums(const Checksums&) = delete;
  Checksums& operator=(const Checksums&) = delete;

  // Of the first chunk, then of the second and so on; not asked for more than there are.
  uint32_t Next() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // As far as the thread goes ahead: what it has read should still be in cache when it is sent.
  static constexpr int64_t kAhead = 4;

  void TakeAll() ABSL_LOCKS_EXCLUDED(mu_);
  uint32_t Of(int64_t chunk) const;

  const absl::string_view data_;
  const int64_t chunk_bytes_;
  const int64_t chunks_;

  absl::Mutex mu_;
  int64_t taken_ ABSL_GUARDED_BY(mu_) = 0;  // by the thread
  int64_t asked_ ABSL_GUARDED_BY(mu_) = 0;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  std::array<uint32_t, kAhead> ready_ ABSL_GUARDED_BY(mu_) = {};
  std::thread thread_;
};

}  // namespace gemmd::client
