// What gRPC and protobuf have to say goes into our log, escaped like everything else: on their own
// they would write lines of another form to stderr, with whatever a peer sent in them.

#pragma once

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
