// What the fake daemon's services share. One lock over everything: it is there to be looked at.

#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/shared_memory.h"
#include "gemmd/v1/buffer_service.grpc.pb.h"
#include "gemmd/v1/compute_service.grpc.pb.h"
#include "gemmd/v1/device_service.grpc.pb.h"
#include "gemmd/v1/session_service.grpc.pb.h"
#include "tests/client/cpp/fake_daemon.h"

namespace gemmd::client {

struct FakeBuffer {
  v1::Buffer info;
  std::string bytes;
  std::optional<SharedMemory> memory;  // HOST_SHARED ones

  char* data() { return memory ? memory->span().data() : bytes.data(); }
};

struct Failure {
  absl::Status status;
  bool after;
  bool stall;
};

// Trailing metadata as the daemon sets it.
grpc::Status ToGrpc(const absl::Status& status, grpc::ServerContextBase* context);

class FakeShare;

struct FakeState {
  explicit FakeState(const FakeDaemon::Options& options) : options(options) {}

  const FakeDaemon::Options options;
  mutable absl::Mutex mu;
  std::map<std::string, int> calls ABSL_GUARDED_BY(mu);
  std::map<std::string, std::deque<Failure>> failures ABSL_GUARDED_BY(mu);
  std::map<std::string, std::string> metadata ABSL_GUARDED_BY(mu);
  int next_id ABSL_GUARDED_BY(mu) = 1;
  std::set<std::string> sessions ABSL_GUARDED_BY(mu);
  int holds ABSL_GUARDED_BY(mu) = 0;
  int hold_generation ABSL_GUARDED_BY(mu) = 0;  // streams of an older one end
  std::optional<absl::Time> drain ABSL_GUARDED_BY(mu);
  std::vector<std::pair<std::string, FakeBuffer>> buffers ABSL_GUARDED_BY(mu);
  int most_buffers ABSL_GUARDED_BY(mu) = 1 << 30;
  std::map<std::string, std::string> published ABSL_GUARDED_BY(mu);  // name to id
  std::map<std::string, v1::CreatePlanRequest> plans ABSL_GUARDED_BY(mu);
  int programs ABSL_GUARDED_BY(mu) = 0;
  std::map<std::string, v1::ExecuteResponse> replies ABSL_GUARDED_BY(mu);  // by op_id
  int cut_upload_after ABSL_GUARDED_BY(mu) = 0;
  int cut_uploads ABSL_GUARDED_BY(mu) = 0;
  int damaged_upload ABSL_GUARDED_BY(mu) = -1;
  int cut_download_after ABSL_GUARDED_BY(mu) = 0;
  int cut_downloads ABSL_GUARDED_BY(mu) = 0;
  int damaged_downloads ABSL_GUARDED_BY(mu) = 0;
  bool hold_completions ABSL_GUARDED_BY(mu) = false;
  int completions_per_message ABSL_GUARDED_BY(mu) = 1;
  int batches_held ABSL_GUARDED_BY(mu) = 0;
  int most_in_flight ABSL_GUARDED_BY(mu) = 0;
  std::vector<int> queue_messages ABSL_GUARDED_BY(mu);  // the batches of each
  std::map<int64_t, absl::Status> batch_failures ABSL_GUARDED_BY(mu);
  int64_t cut_queue_at ABSL_GUARDED_BY(mu) = -1;
  bool misorder ABSL_GUARDED_BY(mu) = false;
  std::map<std::string, int> tokens ABSL_GUARDED_BY(mu);  // share tokens to descriptors; not owned
  bool stopping ABSL_GUARDED_BY(mu) = false;

  std::string NewId() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  FakeBuffer* Find(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // A unary method: counts, fails as told, else does `work` under the lock.
  template <typename Work>
  grpc::Status Serve(const std::string& method, grpc::ServerContext* context, Work work) {
    absl::MutexLock lock(&mu);
    const std::optional<Failure> failure = Begin(method, context);
    if (failure && failure->stall) {
      while (!context->IsCancelled() && !stopping) {
        mu.AwaitWithTimeout(absl::Condition(&stopping), absl::Milliseconds(5));
      }
      return grpc::Status(grpc::StatusCode::CANCELLED, "stalled");
    }
    if (failure && !failure->after) return ToGrpc(failure->status, context);
    const absl::Status status = work();
    return ToGrpc(failure ? failure->status : status, context);
  }
  std::optional<Failure> Begin(const std::string& method, grpc::ServerContextBase* context)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // Runs ops; the outputs go into `response`.
  absl::Status Run(const google::protobuf::RepeatedPtrField<v1::Op>& ops,
                   v1::ExecuteResponse* response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  absl::Status RunPlan(const v1::PlanRun& run, v1::ExecuteResponse* response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  std::vector<std::unique_ptr<grpc::Service>> services;
  std::unique_ptr<FakeShare> share;
  std::unique_ptr<grpc::Server> server;
};

std::unique_ptr<grpc::Service> MakeFakeSessions(FakeState& state);
std::unique_ptr<grpc::Service> MakeFakeBuffers(FakeState& state);
std::unique_ptr<grpc::Service> MakeFakeCompute(FakeState& state);
std::unique_ptr<grpc::Service> MakeFakeDevices(FakeState& state);

// The share socket, on a thread of its own.
class FakeShare {
 public:
  explicit FakeShare(FakeState& state);
  ~FakeShare();
  const std::string& address() const { return address_; }

 private:
  void Serve();
  void Answer(int connection);

  FakeState& state_;
  std::string address_;
  int listener_;
  std::thread thread_;
};

}  // namespace gemmd::client
