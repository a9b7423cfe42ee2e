// Where a trace goes while it is taken: a file that has no name before it is whole, or stdout.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cli/files/new_file.h"

namespace gemmd::cli {

class Sink {
 public:
  // "-" is stdout.
  absl::Status Open(const std::string& path);
  // What is to be written: append to it, then flush. The first failure is that of all later calls.
  std::string& text() { return text_; }
  absl::Status FlushWhenMuch();
  absl::Status Commit();

 private:
  absl::Status Flush();
  absl::Status Write(absl::string_view text);

  files::NewFile file_;  // no descriptor: stdout
  std::string text_;
  absl::Status status_;
};

}  // namespace gemmd::cli
