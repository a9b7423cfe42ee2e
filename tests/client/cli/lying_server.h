// A server that answers every call of the wire API with the same text in each of its strings:
// names, labels, versions, models. What a client does with it shows what it trusts.

#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace gemmd::cli {

class LyingServer {
 public:
  // With `refuses`, every call but a health check fails, and `lie` is the message.
  LyingServer(const std::string& lie, bool refuses);
  ~LyingServer();

  const std::string& target() const { return target_; }  // an abstract Unix socket

 private:
  class Service;
  std::string target_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gemmd::cli
