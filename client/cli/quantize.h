// The ways of quantising that --quantize offers, as one table.

#pragma once

#include "absl/strings/string_view.h"
#include "client/cli/files/dtype.h"
#include "client/cpp/types.h"

namespace gemmd::cli {

struct QuantizeMode {
  absl::string_view name;
  client::DType dtype;  // kUnspecified: not at all
  client::ScaleGranularity a;
  client::ScaleGranularity b;
};

// For a flag's `choices`, in the order of the table.
inline constexpr absl::string_view kQuantizeNames[] = {
    "none", "fp8-block", "fp8-tensor", "fp8-row", "int8-row", "int8-tensor", "int8-block"};
// `name` is one of kQuantizeNames.
const QuantizeMode& QuantizeModeOf(absl::string_view name);

inline constexpr absl::string_view kInputDTypeNames[] = {"f32",  "bf16", "f16",
                                                         "e4m3", "e5m2", "i8"};
inline constexpr absl::string_view kOutputDTypeNames[] = {"f32", "bf16", "f16"};

client::DType ToClient(files::DType dtype);  // not kF64
files::DType ToFile(client::DType dtype);    // not kUnspecified

}  // namespace gemmd::cli
