#include "kernels/kernel.h"

namespace gemmd::kernels {

std::string_view Name(ChoiceReason reason) {
  switch (reason) {
    case ChoiceReason::kTable:
      return "table";
    case ChoiceReason::kTuned:
      return "tuned";
    case ChoiceReason::kModel:
      return "model";
    case ChoiceReason::kForced:
      return "forced";
    case ChoiceReason::kFallback:
      return "fallback";
    case ChoiceReason::kOnly:
      return "only";
  }
  return "unknown";
}

}  // namespace gemmd::kernels
