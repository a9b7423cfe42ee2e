#include "server/engine/scheduling/job.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"

namespace gemmd::server {

std::string_view Name(Priority priority) {
  constexpr std::array<std::string_view, kPriorities> kNames = {"high", "normal", "low"};
  return kNames[static_cast<int>(priority)];
}

void Chain::Fail(int64_t position) {
  int64_t seen = failed_at_.load(std::memory_order_relaxed);
  while (position < seen && !failed_at_.compare_exchange_weak(seen, position)) {
  }
}

absl::Status Chain::Check(int64_t position) const {
  const int64_t failed = failed_at_.load(std::memory_order_acquire);
  if (failed >= position) return absl::OkStatus();
  return WithReason(
      absl::AbortedError(absl::StrCat("batch ", failed,
                                      " before this one failed; nothing of this one ran; send "
                                      "a batch with resume set to go on")),
      reason::kEarlierBatch);
}

}  // namespace gemmd::server
