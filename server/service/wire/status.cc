#include "server/service/wire/status.h"

#include <string>

namespace gemmd::server {
namespace {
constexpr size_t kMaxMessageBytes = 4096;
}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Both enums are google.rpc.Code.
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message().substr(0, kMaxMessageBytes)));
}

}  // namespace gemmd::server
