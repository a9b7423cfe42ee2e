#include "server/service/listen/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/engine/text.h"

namespace gemmd::server {
namespace {

// gRPC's threads outlive any server, so the log is looked up under a lock.
ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);
Log* current ABSL_GUARDED_BY(mutex) = nullptr;

// Anybody who can connect can make handshakes fail: what gRPC says of them must not fill the log.
constexpr int kErrorsPerSecond = 20;
ABSL_CONST_INIT absl::Mutex error_mutex(absl::kConstInit);
int64_t error_second ABSL_GUARDED_BY(error_mutex) = 0;
int errors ABSL_GUARDED_BY(error_mutex) = 0;        // in that second
int64_t left_out ABSL_GUARDED_BY(error_mutex) = 0;  // since the last line

// For how long the end of the process waits for a line that says why.
constexpr absl::Duration kLastWord = absl::Seconds(1);

// How many lines were left out before this one, or -1 if it is to be left out itself.
int64_t TakeErrorLine() {
  absl::MutexLock lock(&error_mutex);
  const int64_t second = absl::ToUnixSeconds(absl::Now());
  if (second != error_second) errors = 0;
  error_second = second;
  if (errors >= kErrorsPerSecond) {
    ++left_out;
    return -1;
  }
  ++errors;
  return std::exchange(left_out, 0);
}

std::string Where(std::string_view file, int line) {
  file.remove_prefix(file.rfind('/') + 1);  // all of it when there is none: npos + 1 is 0
  return absl::StrCat(Text(file), ":", line);
}

// A string that is not UTF-8, sent by anybody: the call's own answer says it too.
void WriteProtobuf(google::protobuf::LogLevel, const char* file, int line,
                   const std::string& message) {
  const std::string where = Where(file, line);
  absl::ReaderMutexLock lock(&mutex);
  if (current != nullptr) current->Debug("protobuf", {{"where", where}, {"message", message}});
}

// gRPC ends the process when this returns.
void WriteLast(std::string_view where, std::string_view message) ABSL_SHARED_LOCKS_REQUIRED(mutex) {
  current->Error("grpc", {{"where", where}, {"message", message}});
  current->Flush(kLastWord);
}

void Write(gpr_log_func_args* args) {
  const std::string where = Where(args->file, args->line);
  const std::string_view message(args->message);
  absl::ReaderMutexLock lock(&mutex);
  if (current == nullptr) return;
  switch (args->severity) {
    case GPR_LOG_SEVERITY_ERROR: {
      if (absl::StartsWith(Text(message), "assertion failed")) return WriteLast(where, message);
      // Of a peer more often than of ours: a handshake that failed.
      const int64_t skipped = TakeErrorLine();
      if (skipped < 0) return;
      return current->Warning("grpc",
                              {{"where", where}, {"message", message}, {"left_out", skipped}});
    }
    case GPR_LOG_SEVERITY_INFO:
      return current->Info("grpc", {{"where", where}, {"message", message}});
    default:
      return current->Debug("grpc", {{"where", where}, {"message", message}});
  }
}

void SetCurrent(Log* log) {
  absl::MutexLock lock(&mutex);
  current = log;
}

}  // namespace

GrpcLog::GrpcLog(Log& log) {
  SetCurrent(&log);
  gpr_set_log_function(Write);
  google::protobuf::SetLogHandler(WriteProtobuf);
}

GrpcLog::~GrpcLog() { SetCurrent(nullptr); }

}  // namespace gemmd::server
