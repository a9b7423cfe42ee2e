// Clients that make a daemon hold memory for them and go on holding it until they are destroyed.

#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/wire.h"
#include "tests/hostile/http2.h"

namespace gemmd::hostile {

// Queues that are written to and never read, on a connection each.
class UnreadQueues {
 public:
  UnreadQueues(const std::string& target, const std::string& session, int count,
               const v1::Batch& batch);
  ~UnreadQueues();

 private:
  std::vector<std::unique_ptr<e2e::Wire>> wires_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::QueueRequest, v1::QueueResponse>>>
      streams_;
  std::vector<std::thread> threads_;
};

// Downloads of a buffer that are never read, on a connection each.
class UnreadDownloads {
 public:
  UnreadDownloads(const std::string& target, const std::string& session, const std::string& buffer,
                  int count);
  ~UnreadDownloads();

 private:
  std::vector<std::unique_ptr<e2e::Wire>> wires_;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts_;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::DownloadResponse>>> streams_;
};

// Executes whose answers stay on the way: nobody looks at their completion queue.
class UnreadCalls {
 public:
  UnreadCalls(const std::string& target, const v1::ExecuteRequest& request, int count);
  ~UnreadCalls();

 private:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ExecuteResponse>> reader;
    v1::ExecuteResponse response;
    grpc::Status status;
  };
  e2e::Wire wire_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<Call>> calls_;
};

// Executes whose messages lack the last byte, on a connection on which a call was admitted.
class UnfinishedCalls {
 public:
  // Returns when all else was sent, or nothing goes any more.
  UnfinishedCalls(const std::string& target, int count, int64_t message_bytes);

  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  bool SendSome(uint32_t stream, int64_t& left);

  RawConnection peer_;
  int64_t sent_bytes_ = 0;
};

}  // namespace gemmd::hostile
