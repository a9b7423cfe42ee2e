// An open grpc.health.v1 Watch, without generated code: the distribution ships no health.proto.

#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace gemmd::e2e {

class HealthWatch {
 public:
  static constexpr int kServing = 1;
  static constexpr int kNotServing = 2;

  // Watches the whole server.
  explicit HealthWatch(const std::shared_ptr<grpc::Channel>& channel);
  ~HealthWatch();

  // The next ServingStatus; nothing when the stream has ended or `timeout` passes. After a time-out
  // the watch is of no more use.
  std::optional<int> Next(absl::Duration timeout);

 private:
  bool Step(absl::Duration timeout);

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer message_;  // a read under way writes here
  bool ended_ = false;
};

}  // namespace gemmd::e2e
