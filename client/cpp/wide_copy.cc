#include "client/cpp/wide_copy.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace gemmd::client {
namespace {

constexpr size_t kLeastOfAThread = 1 << 20;
constexpr size_t kLine = 64;  // no two threads write one cache line of an aligned target

}  // namespace

int WideCopyThreads() {
  static const int threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency() / 2), 1, 4);
  return threads;
}

void WideCopy(void* target, const void* source, size_t bytes, int threads) {
  const size_t parts = std::clamp<size_t>(bytes / kLeastOfAThread, 1, std::max(threads, 1));
  const size_t part = (bytes / parts + kLine - 1) / kLine * kLine;
  const auto copy = [&](size_t begin) {
    std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(source) + begin,
                std::min(part, bytes - begin));
  };
  std::vector<std::thread> helpers;
  helpers.reserve(parts);
  size_t begin = 0;
  try {
    for (; helpers.size() + 1 < parts && begin + part < bytes; begin += part) {
      helpers.emplace_back(copy, begin);
    }
  } catch (const std::system_error&) {
    // No thread to be had: this one does the rest.
  }
  for (; begin < bytes; begin += part) copy(begin);
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace gemmd::client
