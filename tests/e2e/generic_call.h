// Any RPC by its name, in bytes and with any metadata: for calls that no client of ours makes.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gemmd::e2e {

using Metadata = std::vector<std::pair<std::string, std::string>>;

struct Answered {
  grpc::Status status;
  std::string reason;                  // gemmd-reason
  std::vector<std::string> responses;  // in bytes
  Metadata trailing;
};

// One request message, then the end of requests; all responses until the end. Whatever kind of RPC
// it is: on the wire they are alike. DEADLINE_EXCEEDED after 20 s.
Answered CallByName(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                    const std::string& request, const Metadata& metadata = {});
// The same with any number of request messages, none included.
Answered CallByName(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                    const std::vector<std::string>& requests, const Metadata& metadata = {});

}  // namespace gemmd::e2e
