// Handle: 128 random bits that name a session, buffer or plan. Unguessable, so it is also the right
// to use it.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace gemmd::server {

inline constexpr int kHandleBytes = 16;

struct Handle {
  uint64_t high = 0;
  uint64_t low = 0;

  friend bool operator==(const Handle&, const Handle&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Handle& handle) {
    return H::combine(std::move(h), handle.high, handle.low);
  }
};

// From the kernel's random source. Thread-safe; under 100 ns on average.
Handle NewHandle();

// The 16 bytes that travel.
std::string ToBytes(const Handle& handle);
// Nothing unless `bytes` has exactly 16 bytes.
std::optional<Handle> HandleFromBytes(std::string_view bytes);
// For logs: the first 8 hex digits. Never enough to use the handle.
std::string Redacted(const Handle& handle);

}  // namespace gemmd::server
