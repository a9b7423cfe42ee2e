// A trace of a daemon as it comes over the wire, read by a thread of its own.
//
//   TraceReader trace(channel, absl::Seconds(60));
//   ASSERT_TRUE(trace.WaitBegun());
//   ...
//   EXPECT_TRUE(trace.WaitFor(v1::TraceEvent::KIND_DEVICE, 20));

#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gemmd/v1/admin_service.grpc.pb.h"

namespace gemmd::e2e {

class TraceReader {
 public:
  // `reads`: at once; otherwise nothing is read before Read().
  TraceReader(const std::shared_ptr<grpc::Channel>& channel, absl::Duration duration,
              bool reads = true);
  ~TraceReader();

  void Read();
  bool WaitBegun();
  // False when there are not so many events of the kind within 20 s.
  bool WaitFor(v1::TraceEvent::Kind kind, size_t count);
  std::vector<v1::TraceEvent> Events();
  std::vector<v1::TraceEvent> Events(v1::TraceEvent::Kind kind);
  int64_t dropped();
  void Cancel() { context_.TryCancel(); }
  // Waits for the trace's end.
  grpc::Status Finish();

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::AdminService::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::TraceChunk>> stream_;
  absl::Mutex mutex_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<v1::TraceEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace gemmd::e2e
