// BufferService's Export and Import: what crosses the share socket, and on which terms.

#pragma once

#include "absl/status/status.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "server/service/wire/call.h"

namespace gemmd::server {

absl::Status ExportBuffer(Call& call, const v1::ExportBufferRequest& request,
                          v1::ExportBufferResponse* response);
absl::Status ImportBuffer(Call& call, const v1::ImportBufferRequest& request, v1::Buffer* response);

}  // namespace gemmd::server
