#include "client/cpp/internal/transfers/checksums.h"

#include <system_error>

#include "client/cpp/internal/transfers/crc32c.h"
#include "client/cpp/internal/transfers/wide_copy.h"

namespace gemmd::client {

Checksums::Checksums(absl::string_view data, int64_t chunk_bytes, int threads)
    : data_(data),
      chunk_bytes_(chunk_bytes),
      chunks_((static_cast<int64_t>(data.size()) + chunk_bytes - 1) / chunk_bytes) {
  const auto size = static_cast<int64_t>(data.size());
  if (chunks_ < kAhead || CopyThreads(size, threads) == 1) return;
  try {
    thread_ = std::thread([this] { TakeAll(); });
  } catch (const std::system_error&) {
    // Then it is done in Next.
  }
}

Checksums::~Checksums() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mu_);
    over_ = true;
  }
  thread_.join();
}

uint32_t Checksums::Next() {
  absl::MutexLock lock(&mu_);
  if (!thread_.joinable()) return Of(asked_++);
  const auto there = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return taken_ > asked_; };
  mu_.Await(absl::Condition(&there));
  return ready_[asked_++ % kAhead];
}

void Checksums::TakeAll() {
  for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
    const uint32_t crc = Of(chunk);
    absl::MutexLock lock(&mu_);
    const auto room = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
      return taken_ - asked_ < kAhead || over_;
    };
    mu_.Await(absl::Condition(&room));
    if (over_) return;
    ready_[chunk % kAhead] = crc;
    taken_ = chunk + 1;
  }
}

uint32_t Checksums::Of(int64_t chunk) const {
  return Crc32c(
      data_.substr(static_cast<size_t>(chunk * chunk_bytes_), static_cast<size_t>(chunk_bytes_)));
}

}  // namespace gemmd::client
