// Activations as --activation names them, and in float64 for --verify.

#pragma once

#include "absl/strings/string_view.h"
#include "client/cpp/types.h"

namespace gemmd::cli {

using client::Activation;

// For a flag's `choices`, by number.
inline constexpr absl::string_view kActivationNames[] = {"none",      "relu",     "silu",
                                                         "gelu_tanh", "gelu_erf", "relu_squared"};
// `name` is one of kActivationNames.
Activation ActivationNamed(absl::string_view name);

// NaN stays NaN; -infinity gives the limit.
double Activated(Activation activation, double x);

}  // namespace gemmd::cli
