#include "client/cpp/wide_copy.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

void StreamCopy(void* target, const void* source, size_t bytes) {
  auto* to = static_cast<char*>(target);
  const auto* from = static_cast<const char*>(source);
#if defined(__SSE2__)
  constexpr size_t kLine = 64;
  constexpr size_t kLeast = 256 << 10;  // less may still be in cache when it is read
  constexpr size_t kAhead = 1024;       // the hardware starts anew at each page; this asks across
  if (bytes >= kLeast) {
    const size_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    bytes -= head;
    for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
      _mm_prefetch(from + kAhead, _MM_HINT_NTA);  // never faults, so it may pass the end
      const auto* lines = reinterpret_cast<const __m128i*>(from);
      auto* out = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(lines), b = _mm_loadu_si128(lines + 1);
      const __m128i c = _mm_loadu_si128(lines + 2), d = _mm_loadu_si128(lines + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();  // orders the stores before whatever tells others that the bytes are there
  }
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void WideCopy(void* target, const void* source, size_t bytes, int threads) {
  constexpr auto kGrain = static_cast<size_t>(kCopyGrainBytes);
  std::atomic<size_t> next = 0;
  const auto copy = [&] {
    for (size_t at; (at = next.fetch_add(kGrain, std::memory_order_relaxed)) < bytes;) {
      StreamCopy(static_cast<char*>(target) + at, static_cast<const char*>(source) + at,
                 std::min(kGrain, bytes - at));
    }
  };
  RunWide(CopyThreads(static_cast<int64_t>(bytes), threads), copy, copy);
}

}  // namespace gemmd::client
