// How fast an upload is.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/buffer.h"
#include "client/cpp/transfer.h"

namespace gemmd::bench {

inline constexpr int64_t kUploadChunkBytes = 1 << 20;

// GB/s of one upload of `data` to the start of `buffer`, by `route`, in chunks of a megabyte.
absl::StatusOr<double> UploadRate(client::Buffer& buffer, absl::string_view data,
                                  client::TransferOptions::Route route);

}  // namespace gemmd::bench
