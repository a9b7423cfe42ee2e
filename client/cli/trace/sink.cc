#include "client/cli/trace/sink.h"

#include <unistd.h>

#include <cerrno>

#include "client/cli/args/output.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr size_t kGather = 1 << 20;

}  // namespace

absl::Status Sink::Open(const std::string& path) {
  if (path == "-") return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(file_, files::NewFile::Create(path, files::Existing::kReplace));
  return absl::OkStatus();
}

absl::Status Sink::Flush() {
  if (status_.ok()) status_ = Write(text_);
  text_.clear();
  return status_;
}

absl::Status Sink::FlushWhenMuch() { return text_.size() < kGather ? status_ : Flush(); }

absl::Status Sink::Commit() {
  GEMMD_RETURN_IF_ERROR(Flush());
  return file_.fd() >= 0 ? file_.Commit() : absl::OkStatus();
}

absl::Status Sink::Write(absl::string_view text) {
  if (file_.fd() >= 0) return file_.Write(text);
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return StdoutError(errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace gemmd::cli
