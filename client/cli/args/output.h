// Where a command's results go: one JSON document or plain text on stdout, notes and errors on
// stderr. What reaches a terminal passes through here, and no control character of others does
// (printable.h).

#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cli/args/page.h"

namespace gemmd::cli {

// Keys keep the order in which they were written: people read these documents too.
using Json = nlohmann::ordered_json;

class Output {
 public:
  Output(bool json, bool quiet, absl::string_view program = "gemmctl")
      : json_(json), quiet_(quiet), program_(program) {}

  bool json() const { return json_; }
  bool quiet() const { return quiet_; }

  // The command's result; once a command, as its last act. `text` ends in a newline; with --quiet
  // it is not printed.
  void Result(const Json& document, absl::string_view text);
  // The same of a page, fitted to the terminal that stdout may be.
  void Result(const Json& document, const Page& page);
  // Our own text that the user asked for, such as a script or a help text: printed verbatim, and
  // with --quiet too.
  void Text(absl::string_view text);
  // The next of many pages. `clears`: in the place of the last one on a terminal that it fits. The
  // error is that of written(): a loop ends on it.
  absl::Status Screen(const Page& page, const PageFit& fit, bool clears);
  // Waits that long; the error of written() at once when stdout's reader goes away meanwhile.
  absl::Status Pause(absl::Duration duration);
  // Something worth knowing that is not the result: on stderr, not with --quiet. Its lines are
  // ours.
  void Note(absl::string_view text) const;
  // One line on stderr; with --json also {"error": {...}} on stdout, unless a result is there
  // already. Nothing when the error is that nobody reads any more.
  void Error(const absl::Status& status);

  // The first error of writing to stdout (StdoutError). To be asked last: it flushes.
  absl::Status written();

 private:
  void Write(absl::string_view text);

  const bool json_;
  const bool quiet_;
  const std::string program_;  // before each line on stderr
  bool printed_ = false;       // a document is on stdout
  absl::Status written_;
};

// `error`, an errno, of a write to stdout, with the exit code that it ends the program with.
absl::Status StdoutError(int error);

// Columns padded to the widest cell, two blanks between; the first row is the header. Cells that
// start with a digit are flush right; each is one line, whatever it was (Printable).
std::string Table(const std::vector<std::vector<std::string>>& rows);

std::string HumanBytes(double bytes);      // "1.50 GiB"
std::string HumanSeconds(double seconds);  // "3.21 ms"

}  // namespace gemmd::cli
