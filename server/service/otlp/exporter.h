// OtlpExporter: sends what a SpanQueue has to a collector of traces, by gRPC.
//
// One thread. A batch that the collector does not take is tried again a few times and then given up
// and counted, while newer calls wait in the queue, which is bounded. Nothing else waits for it.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/config.h"
#include "server/engine/observe/log.h"
#include "server/engine/observe/span_queue.h"
#include "server/service/otlp/otlp.pb.h"

namespace gemmd::server {

class OtlpExporter {
 public:
  // NOT_FOUND or PERMISSION_DENIED when the authority's file cannot be read; an endpoint that is
  // not there is no error. Queue and log outlive it.
  static absl::StatusOr<std::unique_ptr<OtlpExporter>> Start(const TracingConfig& config,
                                                             std::string instance, SpanQueue& queue,
                                                             Log& log);
  // Sends what waits, for up to a second.
  ~OtlpExporter();

 private:
  OtlpExporter(std::shared_ptr<grpc::Channel> channel, std::string endpoint, std::string instance,
               SpanQueue& queue, Log& log);

  void Run();
  void Send(const std::vector<CallSpan>& calls);
  // One attempt.
  grpc::Status Export(const otlp::ExportTraceServiceRequest& request,
                      otlp::ExportTraceServiceResponse& response) ABSL_LOCKS_EXCLUDED(mutex_);
  // Says once that the collector is lost, and once that it is back.
  void Tell(const grpc::Status& status);

  const std::shared_ptr<grpc::Channel> channel_;
  const std::string endpoint_;
  const std::string instance_;
  SpanQueue& queue_;
  Log& log_;
  bool reached_ = true;  // the thread's; so that the first failure is told
  absl::Mutex mutex_;
  absl::Time end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // nothing is tried after it
  grpc::ClientContext* under_way_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace gemmd::server
