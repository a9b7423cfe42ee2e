// TimelineEvent: one thing that a daemon did, as the timeline records it. A plain value that is
// copied without allocating.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "absl/time/time.h"

namespace gemmd::server {

struct TimelineEvent {
  enum class Kind : uint8_t { kQueue, kLaunch, kDevice, kOp, kTransfer, kCall };

  Kind kind = Kind::kCall;
  bool estimated = false;  // kOp: not timed by itself
  absl::Time begin;
  absl::Duration duration;
  // Names that live as long as the server: a device's, a tenant's, a kernel's or a method's.
  std::string_view device;
  std::string_view tenant;
  std::string_view name;
  uint64_t program = 0;
  int64_t bytes = 0;
  std::array<char, 32> trace_id = {};  // hex; zeros: none
};
static_assert(std::is_trivially_copyable_v<TimelineEvent>,
              "writers copy it while they may not allocate");

}  // namespace gemmd::server
