// What of a checkpoint becomes a buffer, under which name, and in which form.

#ifndef GEMMD_CLIENT_CLI_LOAD_WEIGHT_H_
#define GEMMD_CLIENT_CLI_LOAD_WEIGHT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cli/load/checkpoint.h"
#include "client/cpp/types.h"

namespace gemmd::cli {

// A buffer with this label is a matrix [n, k]; of E4M3 its scales of 128x128 lie behind its values.
// gemmd.Linear of the Python client reads and makes the same.
inline constexpr char kLinearLabel[] = "gemmd.Linear/1";

// Bytes from a Linear buffer's begin to its scales: the values, up to a multiple of 256.
int64_t LinearScalesAt(int64_t value_bytes);
// The scales' shape: [ceil(n/128), ceil(k/128)].
std::vector<int64_t> LinearScalesShape(absl::Span<const int64_t> shape);

struct Weight {
  enum class Form {
    kPlain,       // as the file has it; F64 becomes F32
    kWithScales,  // E4M3 and the scales that the checkpoint holds beside it
    kQuantize,    // to E4M3 with scales of 128x128, on the device
  };
  std::string name;                          // to publish it under
  const CheckpointTensor* values = nullptr;  // in the checkpoint
  const CheckpointTensor* scales = nullptr;  // kWithScales; of 128x128, or one for all
  std::vector<float> block_scales;           // the same of 128x128, row-major
  Form form = Form::kPlain;
  std::vector<int64_t> shape;  // rank 1 to 3
  client::DType dtype;         // of the buffer
  int64_t size_bytes = 0;      // of the buffer
  bool linear = false;         // takes kLinearLabel

  int64_t source_bytes() const {
    return static_cast<int64_t>(values->data.size() +
                                (scales != nullptr ? scales->data.size() : 0));
  }
};

struct WeightOptions {
  std::string prefix;      // "m@2": a folder of names; empty: none
  bool fp8_block = false;  // --quantize
  std::string only;        // patterns of tensor names, as a shell's; empty: all, none
  std::string skip;
};

// In the checkpoint's order. INVALID_ARGUMENT names the first tensor that cannot be published and
// the remedy: a type that is not served, more than 3 extents, none left, two of one name, a name
// that is too long.
absl::StatusOr<std::vector<Weight>> WeightsOf(const Checkpoint& checkpoint,
                                              const WeightOptions& options);

// SHA-256 of a line that tells form, type and shape, of the values as the file has them, and of
// their scales of 128x128 in F32: docs/weights.md. 32 bytes.
std::string ContentHash(const Weight& weight);

}  // namespace gemmd::cli

#endif  // GEMMD_CLIENT_CLI_LOAD_WEIGHT_H_
