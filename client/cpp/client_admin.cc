// What an operator asks of a running daemon: its log, other people's sessions, a trace.

#include <google/protobuf/duration.pb.h>

#include <memory>
#include <string>
#include <utility>

#include "client/cpp/call.h"
#include "client/cpp/client.h"
#include "client/cpp/client_core.h"
#include "client/cpp/grpc_status.h"
#include "gemmd/v1/admin_service.pb.h"

namespace gemmd::client {
namespace {

LogSettings ToSettings(const v1::LogSettings& settings) {
  return {settings.level(), settings.sample_calls()};
}

}  // namespace

absl::StatusOr<LogSettings> Client::GetLog(const CallOptions& options) {
  v1::LogSettings settings;
  const absl::Status status =
      Call(*core_, options, Again::kAfterBreak, [&](grpc::ClientContext& context) {
        return core_->First().admin.GetLog(&context, v1::GetLogRequest(), &settings);
      });
  if (!status.ok()) return status;
  return ToSettings(settings);
}

absl::StatusOr<LogSettings> Client::SetLog(const LogChange& change, const CallOptions& options) {
  v1::SetLogRequest request;
  request.set_level(change.level);
  if (change.sample_calls) request.set_sample_calls(*change.sample_calls);
  v1::LogSettings settings;
  const absl::Status status =
      Call(*core_, options, Again::kAfterBreak, [&](grpc::ClientContext& context) {
        return core_->First().admin.SetLog(&context, request, &settings);
      });
  if (!status.ok()) return status;
  return ToSettings(settings);
}

absl::Status Client::EndSession(absl::string_view name, const CallOptions& options) {
  v1::EndSessionRequest request;
  request.set_name(std::string(name));
  v1::EndSessionResponse response;
  return Call(*core_, options, Again::kUnsentOnly, [&](grpc::ClientContext& context) {
    return core_->First().admin.EndSession(&context, request, &response);
  });
}

absl::Status Client::Trace(absl::Duration duration,
                           absl::FunctionRef<bool(const v1::TraceChunk&)> take,
                           const CallOptions& options) {
  v1::TraceRequest request;
  absl::Duration rest;
  request.mutable_duration()->set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  request.mutable_duration()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  grpc::ClientContext context;
  Prepare(*core_, context, options, core_->DeadlineOf(options));
  const std::unique_ptr<grpc::ClientReader<v1::TraceChunk>> stream =
      core_->First().admin.Trace(&context, request);
  v1::TraceChunk chunk;
  bool stopped = false;
  while (stream->Read(&chunk)) {
    if (stopped || take(chunk)) continue;
    stopped = true;  // read on: Finish waits until the stream is empty
    context.TryCancel();
  }
  const absl::Status status = FromGrpc(stream->Finish(), context);
  return stopped ? absl::OkStatus() : status;
}

absl::Status Client::Tune(const v1::TuneRequest& request,
                          absl::FunctionRef<bool(const v1::TuneProgress&)> take,
                          const CallOptions& options) {
  grpc::ClientContext context;
  Prepare(*core_, context, options, core_->DeadlineOf(options));
  const std::unique_ptr<grpc::ClientReader<v1::TuneProgress>> stream =
      core_->First().admin.Tune(&context, request);
  v1::TuneProgress progress;
  bool stopped = false;
  while (stream->Read(&progress)) {
    if (stopped || take(progress)) continue;
    stopped = true;  // read on: Finish waits until the stream is empty
    context.TryCancel();
  }
  const absl::Status status = FromGrpc(stream->Finish(), context);
  return stopped ? absl::OkStatus() : status;
}

absl::StatusOr<std::string> Client::ExportTuning(absl::string_view device,
                                                 const CallOptions& options) {
  v1::ExportTuningRequest request;
  request.set_device(std::string(device));
  v1::ExportTuningResponse response;
  const absl::Status status =
      Call(*core_, options, Again::kAfterBreak, [&](grpc::ClientContext& context) {
        return core_->First().admin.ExportTuning(&context, request, &response);
      });
  if (!status.ok()) return status;
  return std::move(*response.mutable_table());
}

absl::StatusOr<std::string> Client::ImportTuning(absl::string_view table, absl::string_view device,
                                                 const CallOptions& options) {
  v1::ImportTuningRequest request;
  request.set_device(std::string(device));
  request.set_table(std::string(table));
  v1::ImportTuningResponse response;
  const absl::Status status =
      Call(*core_, options, Again::kUnsentOnly, [&](grpc::ClientContext& context) {
        return core_->First().admin.ImportTuning(&context, request, &response);
      });
  if (!status.ok()) return status;
  return std::move(*response.mutable_skipped());
}

}  // namespace gemmd::client
