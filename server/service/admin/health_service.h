// HealthService: grpc.health.v1, Check and Watch. gRPC's own takes Watches without end, 17 KB each,
// from anybody who can connect; this one bounds them.

#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace gemmd::server {

// Thread-safe. Must outlive the server that it is registered with.
class HealthService final : public grpc::Service {
 public:
  // Of a connection: a client watches each name once.
  static constexpr int kMaxWatchesOfConnection = 16;
  static constexpr int kMaxWatches = 4096;

  HealthService();
  ~HealthService() override;

  // What is told of `name`; one that was never set is unknown. Tells those who watch it.
  void Set(const std::string& name, bool serving);

 private:
  class Watch;
  class Refused;
  // Of grpc.health.v1.HealthCheckResponse.
  enum Status : int { kServing = 1, kNotServing = 2, kUnknownService = 3 };

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response);
  grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatch(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request);
  absl::Status Add(const std::shared_ptr<Watch>& watch);
  void Remove(const std::shared_ptr<Watch>& watch);
  Status StatusOf(const std::string& name) const;

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, bool> serving_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::shared_ptr<Watch>> watches_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, int> watches_of_ ABSL_GUARDED_BY(mutex_);  // by connection
};

}  // namespace gemmd::server
