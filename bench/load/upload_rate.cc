#include "bench/load/upload_rate.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace gemmd::bench {

absl::StatusOr<double> UploadRate(client::Buffer& buffer, absl::string_view data,
                                  client::TransferOptions::Route route) {
  client::TransferOptions options;
  options.chunk_bytes = kUploadChunkBytes;
  options.route = route;
  const absl::Time start = absl::Now();
  absl::StatusOr<client::TransferReport> moved = buffer.Upload(data, 0, options);
  if (!moved.ok()) return moved.status();
  return static_cast<double>(data.size()) / absl::ToDoubleSeconds(absl::Now() - start) / 1e9;
}

}  // namespace gemmd::bench
