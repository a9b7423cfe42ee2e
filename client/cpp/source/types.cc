#include "client/cpp/types.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/types.pb.h"

namespace gemmd::client {
namespace {

// The wire's numbers are ours, so that a cast converts.
static_assert(static_cast<int>(DType::kF32) == v1::DTYPE_F32);
static_assert(static_cast<int>(DType::kBF16) == v1::DTYPE_BF16);
static_assert(static_cast<int>(DType::kF16) == v1::DTYPE_F16);
static_assert(static_cast<int>(DType::kE4M3) == v1::DTYPE_E4M3);
static_assert(static_cast<int>(DType::kI8) == v1::DTYPE_I8);
static_assert(static_cast<int>(DType::kI32) == v1::DTYPE_I32);
static_assert(static_cast<int>(DType::kE5M2) == v1::DTYPE_E5M2);
static_assert(static_cast<int>(GroupLayout::kCounts) == v1::GROUP_LAYOUT_COUNTS);
static_assert(static_cast<int>(GroupLayout::kRowIds) == v1::GROUP_LAYOUT_ROW_IDS);
static_assert(static_cast<int>(GroupLayout::kEnds) == v1::GROUP_LAYOUT_ENDS);
static_assert(static_cast<int>(RouterScores::kSigmoid) == v1::ROUTER_SCORES_SIGMOID);
static_assert(static_cast<int>(GroupScore::kTop2Sum) == v1::GROUP_SCORE_TOP2_SUM);
static_assert(static_cast<int>(ScaleGranularity::kPerTensor) == v1::SCALE_GRANULARITY_PER_TENSOR);
static_assert(static_cast<int>(ScaleGranularity::kPerRow) == v1::SCALE_GRANULARITY_PER_ROW);
static_assert(static_cast<int>(ScaleGranularity::kBlock1x128) == v1::SCALE_GRANULARITY_BLOCK_1X128);
static_assert(static_cast<int>(ScaleGranularity::kBlock128x128) ==
              v1::SCALE_GRANULARITY_BLOCK_128X128);
static_assert(static_cast<int>(Activation::kRelu) == v1::ACTIVATION_RELU);
static_assert(static_cast<int>(Activation::kSilu) == v1::ACTIVATION_SILU);
static_assert(static_cast<int>(Activation::kGeluTanh) == v1::ACTIVATION_GELU_TANH);
static_assert(static_cast<int>(Activation::kGeluErf) == v1::ACTIVATION_GELU_ERF);
static_assert(static_cast<int>(Activation::kReluSquared) == v1::ACTIVATION_RELU_SQUARED);
static_assert(static_cast<int>(Priority::kHigh) == v1::PRIORITY_HIGH);
static_assert(static_cast<int>(Priority::kLow) == v1::PRIORITY_LOW);
static_assert(static_cast<int>(ReportLevel::kSummary) == v1::REPORT_LEVEL_SUMMARY);
static_assert(static_cast<int>(ReportLevel::kNone) == v1::REPORT_LEVEL_NONE);
static_assert(static_cast<int>(MemoryKind::kHostShared) == v1::MEMORY_KIND_HOST_SHARED);
static_assert(static_cast<int>(MemoryKind::kDeviceShared) == v1::MEMORY_KIND_DEVICE_SHARED);
static_assert(static_cast<int>(MemoryKind::kDeviceImported) == v1::MEMORY_KIND_DEVICE_IMPORTED);

struct DTypeRow {
  DType dtype;
  absl::string_view name;
  int64_t size_bytes;
};

constexpr std::array<DTypeRow, 8> kDTypes = {{{DType::kUnspecified, "unspecified", 0},
                                              {DType::kF32, "f32", 4},
                                              {DType::kBF16, "bf16", 2},
                                              {DType::kF16, "f16", 2},
                                              {DType::kE4M3, "e4m3", 1},
                                              {DType::kI8, "i8", 1},
                                              {DType::kI32, "i32", 4},
                                              {DType::kE5M2, "e5m2", 1}}};

// A newer server may know more types than this library: those are unspecified to it.
const DTypeRow& Row(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < kDTypes.size() ? kDTypes[index] : kDTypes[0];
}

}  // namespace

int64_t SizeBytes(DType dtype) { return Row(dtype).size_bytes; }

absl::string_view Name(DType dtype) { return Row(dtype).name; }

absl::string_view Name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return "device";
    case MemoryKind::kHostShared:
      return "host_shared";
    case MemoryKind::kDeviceShared:
      return "device_shared";
    case MemoryKind::kDeviceImported:
      return "device_imported";
  }
  return "unknown";  // of a newer server
}

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype != DType::kUnspecified && row.name == name) return row.dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown dtype \"", name, "\"; one of f32, bf16, f16, e4m3, e5m2, i8, i32"));
}

absl::StatusOr<Handle> Handle::FromBytes(absl::string_view bytes) {
  Handle handle;
  if (bytes.size() != handle.bytes_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a handle has ", handle.bytes_.size(), " bytes, not ", bytes.size()));
  }
  std::copy(bytes.begin(), bytes.end(), handle.bytes_.begin());
  return handle;
}

absl::StatusOr<Handle> Handle::FromHex(absl::string_view hex) {
  const bool digits = std::all_of(hex.begin(), hex.end(), absl::ascii_isxdigit);
  if (!digits || hex.size() != 2 * sizeof(bytes_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a handle is 32 hex digits, not \"", hex.substr(0, 64), "\""));
  }
  return FromBytes(absl::HexStringToBytes(hex));
}

std::string Handle::ToHex() const { return absl::BytesToHexString(bytes()); }

}  // namespace gemmd::client
