#include "server/engine/scheduling/program_limits.h"

#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/engine/reason.h"
#include "server/engine/text.h"

namespace gemmd::server {

absl::Status CheckSize(const Tenant& tenant, size_t ops, absl::Span<const int64_t> in,
                       absl::Span<const int64_t> out) {
  const Limits& limits = tenant.limits();
  if (ops == 0) return absl::InvalidArgumentError("the op list is empty; give at least one op");
  if (ops > static_cast<size_t>(limits.max_ops)) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat("the program has ", ops, " ops, limit ",
                                                  limits.max_ops, "; send it in parts")),
        reason::kOpsLimit);
  }
  for (const auto& [sizes, what, remedy] :
       {std::tuple(in, "Write", "Upload"), std::tuple(out, "Read", "Download")}) {
    int64_t total = 0;
    for (int64_t bytes : sizes) {
      if (bytes < 0 || bytes > limits.max_inline_bytes - total) {
        return WithReason(absl::ResourceExhaustedError(
                              absl::StrCat(what, " ops carry more than ", limits.max_inline_bytes,
                                           " bytes, the limit of inline data; use ", remedy)),
                          reason::kInlineLimit);
      }
      total += bytes;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTime(const Tenant& tenant, std::string_view device, double seconds) {
  const absl::Duration needs = absl::Seconds(seconds);
  const absl::Duration limit = tenant.limits().max_program_time;
  if (needs <= limit) return absl::OkStatus();
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the program needs about ", absl::FormatDuration(needs), " of ", Text(device), ", limit ",
          absl::FormatDuration(limit), " a program; send it in parts")),
      reason::kProgramLimit);
}

}  // namespace gemmd::server
