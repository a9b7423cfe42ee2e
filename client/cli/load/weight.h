// What of a checkpoint becomes a buffer, under which name, and in which form.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/load/checkpoint.h"
#include "client/cpp/types.h"

namespace gemmd::cli {

// A buffer with one of these labels is a matrix [n, k]; of E4M3 its scales lie behind its values:
// of 128x128, or one a row. gemmd.Linear of the Python client reads and makes the same, and adds
// kLinearBias where there is one.
inline constexpr char kLinearLabel[] = "gemmd.Linear/1";
inline constexpr char kLinearByRowLabel[] = "gemmd.Linear.row/1";
inline constexpr char kLinearBias[] = "+bias";

// Of the scales that a label tells of, where its buffer is of E4M3; kNone: it is none of these.
client::ScaleGranularity LinearScales(absl::string_view label);
// Bytes from a Linear buffer's begin to its scales: the values, up to a multiple of 256.
int64_t LinearScalesAt(int64_t value_bytes);

struct Weight {
  enum class Form {
    kPlain,       // as the file has it; F64 becomes F32
    kWithScales,  // E4M3 and the scales that the checkpoint holds beside it
    kQuantize,    // to E4M3 with scales, on the device
  };
  std::string name;                          // to publish it under
  const CheckpointTensor* values = nullptr;  // in the checkpoint
  const CheckpointTensor* scales = nullptr;  // kWithScales; of `granularity`, or one for all
  std::vector<float> scale_values;           // the same of `granularity`, row-major
  Form form = Form::kPlain;
  client::ScaleGranularity granularity =
      client::ScaleGranularity::kNone;  // kBlock128x128 or kPerRow, unless kPlain
  std::vector<int64_t> shape;           // rank 1 to 3
  client::DType dtype;                  // of the buffer
  int64_t size_bytes = 0;               // of the buffer
  const char* label = nullptr;          // of the buffer: kLinearLabel, kLinearByRowLabel or another

  int64_t source_bytes() const {
    return static_cast<int64_t>(values->data.size() +
                                (scales != nullptr ? scales->data.size() : 0));
  }
};

struct WeightOptions {
  std::string prefix;  // "m@2": a folder of names; empty: none
  client::ScaleGranularity quantize =
      client::ScaleGranularity::kNone;  // kBlock128x128 or kPerRow: matrices of floats, to E4M3
  std::string only;                     // patterns of tensor names, as a shell's; empty: all, none
  std::string skip;
};

// In the checkpoint's order. INVALID_ARGUMENT names the first tensor that cannot be published and
// the remedy: a type that is not served, more than 3 extents, none left, two of one name, a name
// that is too long.
absl::StatusOr<std::vector<Weight>> WeightsOf(const Checkpoint& checkpoint,
                                              const WeightOptions& options);

// SHA-256 of a line that tells form, type and shape, of the values as the file has them, and of
// their scales in F32: docs/weights.md. 32 bytes.
std::string ContentHash(const Weight& weight);

}  // namespace gemmd::cli
