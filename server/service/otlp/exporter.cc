#include "server/service/otlp/exporter.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/security/credentials.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/engine/text.h"
#include "server/service/otlp/encode.h"

namespace gemmd::server {
namespace {

constexpr char kMethod[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr absl::Duration kAttemptPatience = absl::Seconds(5);  // for one attempt
constexpr int kAttempts = 4;
constexpr absl::Duration kFirstPause = absl::Milliseconds(250);
constexpr absl::Duration kLongestPause = absl::Seconds(4);
constexpr absl::Duration kAtTheEnd = absl::Seconds(1);
// Calls that come within this time go in one message.
constexpr absl::Duration kGather = absl::Milliseconds(200);
constexpr size_t kMostCalls = 512;  // of one message: some 400 kB

// By the specification, what may be tried again.
bool IsPassing(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

int64_t SpansOf(const std::vector<CallSpan>& calls) {
  int64_t spans = 0;
  for (const CallSpan& call : calls) spans += static_cast<int64_t>(call.spans());
  return spans;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OtlpExporter>> OtlpExporter::Start(const TracingConfig& config,
                                                                  std::string instance,
                                                                  SpanQueue& queue, Log& log) {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!config.ca_file.empty()) {
    std::ifstream file(config.ca_file);
    std::stringstream text;
    text << file.rdbuf();
    if (!file || text.str().empty()) {
      return absl::ErrnoToStatus(
          errno == 0 ? ENOENT : errno,
          absl::StrCat("tracing.ca_file: cannot read '", config.ca_file,
                       "'; give the PEM file of the authority that signed the collector's "
                       "certificate"));
    }
    credentials = grpc::SslCredentials({.pem_root_certs = text.str()});
  }
  std::unique_ptr<OtlpExporter> exporter(
      new OtlpExporter(grpc::CreateChannel(config.otlp_endpoint, credentials), config.otlp_endpoint,
                       std::move(instance), queue, log));
  exporter->thread_ = std::thread([e = exporter.get()] { e->Run(); });
  return exporter;
}

OtlpExporter::OtlpExporter(std::shared_ptr<grpc::Channel> channel, std::string endpoint,
                           std::string instance, SpanQueue& queue, Log& log)
    : channel_(std::move(channel)),
      endpoint_(std::move(endpoint)),
      instance_(std::move(instance)),
      queue_(queue),
      log_(log) {}

OtlpExporter::~OtlpExporter() {
  {
    absl::MutexLock lock(&mutex_);
    end_ = absl::Now() + kAtTheEnd;
    if (under_way_ != nullptr) under_way_->TryCancel();  // a batch for a collector that hangs
  }
  queue_.Stop();
  thread_.join();
}

void OtlpExporter::Run() {
  prctl(PR_SET_NAME, "gemmd-otlp");
  for (;;) {
    std::vector<CallSpan> calls = queue_.Take();
    if (!calls.empty()) Send(calls);
    if (queue_.stopped()) break;
    absl::SleepFor(kGather);
  }
}

void OtlpExporter::Send(const std::vector<CallSpan>& calls) {
  for (size_t at = 0; at < calls.size(); at += kMostCalls) {
    const std::vector<CallSpan> some(calls.begin() + at,
                                     calls.begin() + std::min(at + kMostCalls, calls.size()));
    const otlp::ExportTraceServiceRequest request = Encode(some, instance_);
    const int64_t spans = SpansOf(some);
    grpc::Status status;
    otlp::ExportTraceServiceResponse response;
    absl::Duration pause = kFirstPause;
    for (int attempt = 1;; ++attempt) {
      status = Export(request, response);
      if (status.ok() || !IsPassing(status.error_code()) || attempt == kAttempts) break;
      Tell(status);
      absl::MutexLock lock(&mutex_);
      // Wakes at once when the end comes.
      const auto ends = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return end_ < absl::InfiniteFuture();
      };
      if (mutex_.AwaitWithTimeout(absl::Condition(&ends), pause) && absl::Now() >= end_) break;
      pause = std::min(2 * pause, kLongestPause);
    }
    Tell(status);
    const int64_t rejected =
        status.ok() ? std::clamp<int64_t>(response.partial_success().rejected_spans(), 0, spans)
                    : spans;
    queue_.CountFailed(rejected);
    queue_.CountSent(spans - rejected);
  }
}

grpc::Status OtlpExporter::Export(const otlp::ExportTraceServiceRequest& request,
                                  otlp::ExportTraceServiceResponse& response) {
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    const absl::Time deadline = std::min(absl::Now() + kAttemptPatience, end_);
    context.set_deadline(absl::ToChronoTime(deadline));
    under_way_ = &context;
  }
  const grpc::internal::RpcMethod method(kMethod, grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::Status status = grpc::internal::BlockingUnaryCall<
      otlp::ExportTraceServiceRequest, otlp::ExportTraceServiceResponse,
      google::protobuf::MessageLite, google::protobuf::MessageLite>(channel_.get(), method,
                                                                    &context, request, &response);
  absl::MutexLock lock(&mutex_);
  under_way_ = nullptr;
  return status;
}

void OtlpExporter::Tell(const grpc::Status& status) {
  if (status.ok() == reached_) return;
  reached_ = status.ok();
  if (reached_) return log_.Info("otlp_reached", {{"endpoint", endpoint_}});
  const std::string message = status.error_message();
  log_.Warning("otlp_failed", {{"endpoint", endpoint_}, {"message", message}});
}

}  // namespace gemmd::server
