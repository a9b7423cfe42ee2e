#include "client/cli/numerics/activation.h"

#include <cmath>
#include <cstdlib>
#include <iterator>

namespace gemmd::cli {

Activation ActivationNamed(absl::string_view name) {
  for (size_t i = 0; i < std::size(kActivationNames); ++i) {
    if (kActivationNames[i] == name) return static_cast<Activation>(i);
  }
  std::abort();  // the parser lets only kActivationNames through
}

double Activated(Activation activation, double x) {
  if (activation == Activation::kNone || std::isnan(x)) return x;
  if (std::isinf(x)) return x < 0 ? 0 : x;
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return x / 2 * std::erfc(-x / M_SQRT2);
    case Activation::kReluSquared:
      return x < 0 ? 0 : x * x;
  }
  return x;
}

}  // namespace gemmd::cli
