// What gRPC and protobuf have to say goes into our log, escaped like everything else: on their own
// they would write lines of another form to stderr, with whatever a peer sent in them.

#ifndef GEMMD_SERVER_SERVICE_LISTEN_GRPC_LOG_H_
#define GEMMD_SERVER_SERVICE_LISTEN_GRPC_LOG_H_

#include "server/engine/observe/log.h"

namespace gemmd::server {

// Until this is destroyed. One at a time.
class GrpcLog {
 public:
  explicit GrpcLog(Log& log);
  ~GrpcLog();
  GrpcLog(const GrpcLog&) = delete;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_LISTEN_GRPC_LOG_H_
