// The small nouns of the API: element types, scale granularities, priorities, handles. Values equal
// those of gemmd/v1/types.proto; types.cc holds the two together by static_assert.

#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::client {

enum class DType : int {
  kUnspecified = 0,
  kF32 = 1,
  kBF16 = 2,
  kF16 = 3,
  kE4M3 = 4,  // OCP FP8 E4M3: no infinities, largest 448
  kI8 = 5,
  kI32 = 6,   // counts, offsets and row numbers
  kE5M2 = 7,  // OCP FP8 E5M2: infinities and NaNs, largest finite 57344
};

// Bytes of one element; 0 for kUnspecified.
int64_t SizeBytes(DType dtype);
// "f32", "bf16", "f16", "e4m3", "i8", "i32", "e5m2"; "unspecified".
absl::string_view Name(DType dtype);
// The other way. INVALID_ARGUMENT lists the names.
absl::StatusOr<DType> ParseDType(absl::string_view name);

// How many elements share one FP32 scale. Rows are m (of A) or n (of B); blocks run along k.
enum class ScaleGranularity : int {
  kNone = 0,
  kPerTensor = 1,     // scales [1]
  kPerRow = 2,        // scales [rows]
  kBlock1x128 = 3,    // scales [rows, ceil(k/128)]; see scales.h for the layout that is fastest
  kBlock128x128 = 4,  // scales [ceil(rows/128), ceil(k/128)]
};

// Of one number x.
enum class Activation : int {
  kNone = 0,
  kRelu = 1,         // max(x, 0)
  kSilu = 2,         // x * sigmoid(x)
  kGeluTanh = 3,     // x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
  kGeluErf = 4,      // x/2 * (1 + erf(x / sqrt(2)))
  kReluSquared = 5,  // max(x, 0)^2
};

// How GroupedMatmul::groups tells which rows are whose; see there.
enum class GroupLayout : int { kOffsets = 0, kCounts = 1, kRowIds = 2, kEnds = 3 };

// How a router's logits become scores, and what groups of experts are compared by: the largest of
// theirs, or the sum of the two largest. See ChooseExperts.
enum class RouterScores : int { kSoftmax = 0, kSigmoid = 1 };
enum class GroupScore : int { kMax = 0, kTop2Sum = 1 };

// What order programs of one tenant run in. Waiting raises it, so kLow is never starved.
enum class Priority : int { kNormal = 0, kHigh = 1, kLow = 2 };

// How much of a ProgramReport comes back: every op, the program alone, nothing.
enum class ReportLevel : int { kFull = 0, kSummary = 1, kNone = 2 };

enum class MemoryKind : int {
  kDevice = 0,          // where kernels work
  kHostShared = 1,      // same-host clients map it (Buffer::Map)
  kDeviceShared = 2,    // a GPU's, alone in its allocation; same-host clients map it (ShareDevice)
  kDeviceImported = 3,  // this or another client's own (Session::ImportDevice)
};
// "device", "host_shared", "device_shared", "device_imported"; "unknown".
absl::string_view Name(MemoryKind kind);

// A session's, buffer's or plan's id: 16 random bytes. A session's is a secret.
//   std::string shown = handle.ToHex();
//   absl::StatusOr<Handle> same = Handle::FromHex(shown);
class Handle {
 public:
  Handle() = default;  // all zero: names nothing

  // INVALID_ARGUMENT unless `bytes` are 16, or `hex` 32 hex digits.
  static absl::StatusOr<Handle> FromBytes(absl::string_view bytes);
  static absl::StatusOr<Handle> FromHex(absl::string_view hex);

  absl::string_view bytes() const { return {bytes_.data(), bytes_.size()}; }
  std::string ToHex() const;
  bool empty() const { return *this == Handle(); }

  friend auto operator<=>(const Handle&, const Handle&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Handle& handle) {
    return H::combine(std::move(h), handle.bytes_);
  }

 private:
  std::array<char, 16> bytes_ = {};
};

}  // namespace gemmd::client
