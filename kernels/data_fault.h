// What an op finds wrong with numbers that it reads while it runs: counts, offsets, row numbers.
// The host cannot know before, so the run ends with an error instead. Plain data: shared by host
// and device.

#pragma once

#include <cstdint>

namespace gemmd::kernels {

enum class DataFaultKind : int32_t {
  kNone = 0,
  kCount = 1,   // groups[index] = value is no count of 0 to `limit` rows
  kOffset = 2,  // groups[index] = value is below the offset in front of it, or beyond `limit`
  kRowId = 3,   // groups[index] = value is no group of -1 to `limit`
  kRowOrder =
      4,        // row `index` is group `value`'s, whose rows end before, or follow a later group's
  kEnd = 5,     // groups[index] = value is an end before the group's start, or beyond `limit`
  kRow = 6,     // rows[index] = value is no row of -1 to `limit`
  kExpert = 7,  // ids[index] = value is no expert of -1 to `limit`
  kPosition = 8,  // positions[index] = value is no row of -1 to `limit`
  kColumn = 9,    // group `index` starts at column `value`, no multiple of `limit`
};

// The first that an op reports, or one of several. 16 bytes, so that a device stores it at once.
struct alignas(16) DataFault {
  DataFaultKind kind = DataFaultKind::kNone;
  int32_t index = 0;
  int32_t value = 0;
  int32_t limit = 0;
};

}  // namespace gemmd::kernels
