#include "client/cli/args/output.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/args/exit_code.h"

namespace gemmd::cli {
namespace {

void Write(std::FILE* stream, absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

}  // namespace

void Output::Result(const Json& document, absl::string_view text) {
  printed_ = true;
  if (json_) {
    // replace: labels and peers come from the server, and an invalid byte must not throw.
    Write(stdout, document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else if (!quiet_) {
    Write(stdout, text);
  }
}

void Output::Text(absl::string_view text) const { Write(stdout, text); }

void Output::Note(absl::string_view text) const {
  if (!quiet_) Write(stderr, absl::StrCat("gemmctl: ", text, "\n"));
}

void Output::Error(const absl::Status& status) const {
  Write(stderr, absl::StrCat("gemmctl: ", status.message(), "\n"));
  if (!json_ || printed_) return;
  const ExitCode code = ExitCodeOf(status);
  const Json document = {{"error",
                          {{"exit_code", static_cast<int>(code)},
                           {"kind", std::string(ExitCodeName(code))},
                           {"status", absl::StatusCodeToString(status.code())},
                           {"message", std::string(status.message())}}}};
  Write(stdout, document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const int width = static_cast<int>(widths[i]);
      const bool number = !row[i].empty() && absl::ascii_isdigit(row[i][0]);
      absl::StrAppend(
          &line, i == 0 ? "" : "  ",
          number ? absl::StrFormat("%*s", width, row[i]) : absl::StrFormat("%-*s", width, row[i]));
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
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
