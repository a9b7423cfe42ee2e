#include "client/cli/args/exit_code.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gemmd::cli {
namespace {

constexpr absl::string_view kPayload = "gemmctl.exit-code";

constexpr ExitCodeMeaning kMeanings[] = {
    {ExitCode::kOk, "ok", "done"},
    {ExitCode::kCheckFailed, "check_failed",
     "a check the command was asked to make did not hold: matmul --verify beyond its bound, a "
     "bench "
     "target missed, health not serving"},
    {ExitCode::kUsage, "usage", "the command line is wrong; nothing was sent"},
    {ExitCode::kBadFile, "bad_file",
     "a file cannot be read, is not what it claims, exists already, or cannot be written; nor can "
     "stdout"},
    {ExitCode::kUnreachable, "unreachable", "no answer from the server in time"},
    {ExitCode::kRefused, "refused",
     "the server answered and refused; the message carries its reason"},
    {ExitCode::kInternal, "internal", "a fault in the server or in gemmctl"},
    {ExitCode::kInterrupted, "interrupted",
     "stopped by SIGINT, SIGTERM or SIGHUP; no partial file is left"},
    {ExitCode::kBrokenPipe, "broken_pipe",
     "whoever read stdout has gone, as in 'gemmctl top | head'; nothing is said"},
};

}  // namespace

std::span<const ExitCodeMeaning> ExitCodes() { return kMeanings; }

absl::string_view ExitCodeName(ExitCode code) {
  for (const ExitCodeMeaning& meaning : kMeanings) {
    if (meaning.code == code) return meaning.name;
  }
  return "unknown";
}

absl::Status WithExit(ExitCode code, absl::Status status) {
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(static_cast<int>(code))));
  return status;
}

bool HasExit(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return ExitCode::kOk;
  if (auto payload = status.GetPayload(kPayload)) {
    int code = 0;
    if (absl::SimpleAtoi(std::string(*payload), &code)) return static_cast<ExitCode>(code);
  }
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return ExitCode::kInternal;
    default:
      return ExitCode::kRefused;
  }
}

}  // namespace gemmd::cli
