// Where a command's results go: one JSON document or plain text on stdout, notes and errors on
// stderr.

#ifndef GEMMD_CLIENT_CLI_ARGS_OUTPUT_H_
#define GEMMD_CLIENT_CLI_ARGS_OUTPUT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmd::cli {

// Keys keep the order in which they were written: people read these documents too.
using Json = nlohmann::ordered_json;

class Output {
 public:
  Output(bool json, bool quiet) : json_(json), quiet_(quiet) {}

  bool json() const { return json_; }
  bool quiet() const { return quiet_; }

  // The command's result; once a command, as its last act. `text` ends in a newline; with --quiet
  // it is not printed.
  void Result(const Json& document, absl::string_view text);
  // What the user asked for verbatim, such as a script or a help text: printed with --quiet too.
  void Text(absl::string_view text) const;
  // Something worth knowing that is not the result: on stderr, not with --quiet.
  void Note(absl::string_view text) const;
  // On stderr; with --json also {"error": {...}} on stdout, unless a result is there already.
  void Error(const absl::Status& status) const;

 private:
  const bool json_;
  const bool quiet_;
  bool printed_ = false;  // a document is on stdout
};

// Columns padded to the widest cell, two blanks between; the first row is the header. Cells that
// start with a digit are flush right.
std::string Table(const std::vector<std::vector<std::string>>& rows);

std::string HumanBytes(double bytes);      // "1.50 GiB"
std::string HumanSeconds(double seconds);  // "3.21 ms"

}  // namespace gemmd::cli

#endif  // GEMMD_CLIENT_CLI_ARGS_OUTPUT_H_
