#include "client/cli/args/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/printable.h"
#include "client/cli/args/terminal.h"

namespace gemmd::cli {
namespace {

void WriteToStderr(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string Dumped(const Json& document) {
  // replace: labels and peers come from the server, and an invalid byte must not throw.
  return PrintableJson(document.dump(2, ' ', false, Json::error_handler_t::replace)) + "\n";
}

}  // namespace

absl::Status StdoutError(int error) {
  if (error == EPIPE) {
    return WithExit(ExitCode::kBrokenPipe, absl::CancelledError("stdout's reader has gone"));
  }
  return WithExit(ExitCode::kBadFile, absl::FailedPreconditionError(absl::StrCat(
                                          "cannot write to stdout: ", std::strerror(error))));
}

void Output::Write(absl::string_view text) {
  while (!text.empty() && written_.ok()) {
    const ssize_t count = write(STDOUT_FILENO, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno != EINTR) {
      written_ = StdoutError(errno);
    }
  }
}

void Output::Result(const Json& document, absl::string_view text) {
  printed_ = true;
  if (json_) {
    Write(Dumped(document));
  } else if (!quiet_) {
    Write(PrintableLines(text));
  }
}

void Output::Text(absl::string_view text) { Write(text); }

void Output::Result(const Json& document, const Page& page) {
  printed_ = true;
  if (json_) {
    Write(Dumped(document));
  } else if (!quiet_) {
    Write(page.Shown(FitOfStdout()));
  }
}

absl::Status Output::Screen(const Page& page, const PageFit& fit, bool clears) {
  const std::string text = page.Shown(fit);
  // Each line takes the old one's place, and what is left below goes: nothing flickers.
  Write(clears ? absl::StrCat("\033[H", absl::StrReplaceAll(text, {{"\n", "\033[K\r\n"}}), "\033[J")
               : absl::StrCat(text, "\n"));
  return written_;
}

absl::Status Output::Pause(absl::Duration duration) {
  constexpr absl::Duration kLongest = absl::Minutes(1);
  const absl::Time end = absl::Now() + duration;
  for (absl::Duration left = duration; left > absl::ZeroDuration(); left = end - absl::Now()) {
    pollfd reader = {STDOUT_FILENO, 0, 0};  // nothing asked for: errors alone
    const absl::Duration piece = std::min(left, kLongest) + absl::Milliseconds(1);
    poll(&reader, 1, static_cast<int>(absl::ToInt64Milliseconds(piece)));
    if (reader.revents == 0) continue;
    if (written_.ok()) written_ = StdoutError(EPIPE);
    break;
  }
  return written_;
}

absl::Status Output::written() {
  // Some file systems tell of a full disk or a lost server when a descriptor is closed.
  const int again = written_.ok() ? dup(STDOUT_FILENO) : -1;
  if (again >= 0 && close(again) != 0 && errno != EINTR) written_ = StdoutError(errno);
  return written_;
}

void Output::Note(absl::string_view text) const {
  if (!quiet_) WriteToStderr(absl::StrCat(program_, ": ", PrintableLines(text), "\n"));
}

void Output::Error(const absl::Status& status) {
  const ExitCode code = ExitCodeOf(status);
  if (code == ExitCode::kBrokenPipe) return;
  WriteToStderr(absl::StrCat(program_, ": ", Printable(status.message()), "\n"));
  if (!json_ || printed_) return;
  Write(Dumped({{"error",
                 {{"exit_code", static_cast<int>(code)},
                  {"kind", std::string(ExitCodeName(code))},
                  {"status", absl::StatusCodeToString(status.code())},
                  {"message", std::string(status.message())}}}}));
}

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  Page page;
  std::vector<Row> cells;
  for (const auto& row : rows) cells.emplace_back(row.begin(), row.end());
  page.Table(std::move(cells));
  return page.Shown({});
}

std::string HumanBytes(double bytes) {
  constexpr absl::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f B", bytes)
                   : absl::StrFormat("%.2f %s", bytes, kUnits[unit]);
}

std::string HumanSeconds(double seconds) {
  if (seconds <= 0) return "0 s";
  if (seconds < 1e-3) return absl::StrFormat("%.1f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.2f ms", seconds * 1e3);
  return absl::StrFormat("%.3f s", seconds);
}

}  // namespace gemmd::cli
