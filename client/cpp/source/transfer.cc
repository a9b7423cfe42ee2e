#include "client/cpp/transfer.h"

namespace gemmd::client {

absl::string_view Name(TransferPath path) { return path == TransferPath::kShm ? "shm" : "grpc"; }

}  // namespace gemmd::client
