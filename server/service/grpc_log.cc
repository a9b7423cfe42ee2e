#include "server/service/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/text.h"

namespace gemmd::server {
namespace {

// gRPC's threads outlive any server, so the log is looked up under a lock.
ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);
Log* current ABSL_GUARDED_BY(mutex) = nullptr;

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

void Write(gpr_log_func_args* args) {
  const std::string where = Where(args->file, args->line);
  const std::string_view message(args->message);
  absl::ReaderMutexLock lock(&mutex);
  if (current == nullptr) return;
  switch (args->severity) {
    case GPR_LOG_SEVERITY_ERROR:
      // Of a peer more often than of ours: a handshake that failed.
      return current->Warning("grpc", {{"where", where}, {"message", message}});
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
