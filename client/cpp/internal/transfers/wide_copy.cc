#include "client/cpp/internal/transfers/wide_copy.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace gemmd::client {

int CopyThreads(int64_t bytes, int most) {
  static const int usual =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency() / 2), 1, 8);
  return static_cast<int>(
      std::clamp<int64_t>(bytes / (2 * kCopyGrainBytes), 1, most > 0 ? most : usual));
}

void RunWide(int threads, absl::FunctionRef<void()> helper, absl::FunctionRef<void()> caller) {
  std::vector<std::jthread> helpers;  // joined also when `caller` throws
  helpers.reserve(static_cast<size_t>(std::max(threads, 1)));
  try {
    for (int i = 1; i < threads; ++i) helpers.emplace_back([helper] { helper(); });
  } catch (const std::system_error&) {
    // No more threads to be had: those there are do the rest.
  }
  caller();
}

void WideCopy(void* target, const void* source, size_t bytes, int threads) {
  constexpr auto kGrain = static_cast<size_t>(kCopyGrainBytes);
  std::atomic<size_t> next = 0;
  const auto copy = [&] {
    for (size_t at; (at = next.fetch_add(kGrain, std::memory_order_relaxed)) < bytes;) {
      std::memcpy(static_cast<char*>(target) + at, static_cast<const char*>(source) + at,
                  std::min(kGrain, bytes - at));
    }
  };
  RunWide(CopyThreads(static_cast<int64_t>(bytes), threads), copy, copy);
}

}  // namespace gemmd::client
