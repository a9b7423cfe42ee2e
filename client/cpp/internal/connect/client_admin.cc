// What an operator asks of a running daemon: its log, other people's sessions, a trace.

#include <google/protobuf/util/time_util.h>

#include <memory>
#include <string>
#include <utility>

#include "client/cpp/client.h"
#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "client/cpp/internal/connect/client_core.h"
#include "gemmd/v1/admin_service.grpc.pb.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

LogSettings ToSettings(const v1::LogSettings& settings) {
  return {settings.level(), settings.sample_calls()};
}

// Until the stream ends or `take` has enough.
template <typename Request, typename Message>
absl::Status ReadStream(ClientCore& core, const CallOptions& options, const Request& request,
                        std::unique_ptr<grpc::ClientReader<Message>> (
                            v1::AdminService::Stub::*open)(grpc::ClientContext*, const Request&),
                        absl::FunctionRef<bool(const Message&)> take) {
  GEMMD_RETURN_IF_ERROR(core.Usable(options));
  grpc::ClientContext context;
  Prepare(core, context, options, core.DeadlineOf(options));
  const auto stub = v1::AdminService::NewStub(core.First().channel());
  const auto stream = ((*stub).*open)(&context, request);
  Message message;
  bool stopped = false;
  while (stream->Read(&message)) {
    if (stopped || take(message)) continue;
    stopped = true;  // read on: Finish waits until the stream is empty
    context.TryCancel();
  }
  const absl::Status status = FromGrpc(stream->Finish(), context);
  return stopped ? absl::OkStatus() : status;
}

}  // namespace

absl::StatusOr<LogSettings> Client::GetLog(const CallOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(const v1::LogSettings settings,
                         core_->Ask<v1::LogSettings>(v1::GetLogRequest(), options));
  return ToSettings(settings);
}

absl::StatusOr<LogSettings> Client::SetLog(const LogChange& change, const CallOptions& options) {
  v1::SetLogRequest request;
  request.set_level(change.level);
  if (change.sample_calls) request.set_sample_calls(*change.sample_calls);
  GEMMD_ASSIGN_OR_RETURN(const v1::LogSettings settings,
                         core_->Ask<v1::LogSettings>(request, options));
  return ToSettings(settings);
}

absl::Status Client::EndSession(absl::string_view name, const CallOptions& options) {
  v1::EndSessionRequest request;
  request.set_name(std::string(name));
  return core_->Ask<v1::EndSessionResponse>(request, options).status();
}

absl::Status Client::Trace(absl::Duration duration,
                           absl::FunctionRef<bool(const v1::TraceChunk&)> take,
                           const CallOptions& options) {
  v1::TraceRequest request;
  *request.mutable_duration() =
      google::protobuf::util::TimeUtil::NanosecondsToDuration(absl::ToInt64Nanoseconds(duration));
  return ReadStream(*core_, options, request, &v1::AdminService::Stub::Trace, take);
}

absl::Status Client::Tune(const v1::TuneRequest& request,
                          absl::FunctionRef<bool(const v1::TuneProgress&)> take,
                          const CallOptions& options) {
  return ReadStream(*core_, options, request, &v1::AdminService::Stub::Tune, take);
}

absl::StatusOr<std::string> Client::ExportTuning(absl::string_view device,
                                                 const CallOptions& options) {
  v1::ExportTuningRequest request;
  request.set_device(std::string(device));
  GEMMD_ASSIGN_OR_RETURN(v1::ExportTuningResponse response,
                         core_->Ask<v1::ExportTuningResponse>(request, options));
  return std::move(*response.mutable_table());
}

absl::StatusOr<std::string> Client::ImportTuning(absl::string_view table, absl::string_view device,
                                                 const CallOptions& options) {
  v1::ImportTuningRequest request;
  request.set_device(std::string(device));
  request.set_table(std::string(table));
  GEMMD_ASSIGN_OR_RETURN(v1::ImportTuningResponse response,
                         core_->Ask<v1::ImportTuningResponse>(request, options));
  return std::move(*response.mutable_skipped());
}

}  // namespace gemmd::client
