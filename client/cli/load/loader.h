// Puts weights on a server and publishes each as soon as it is whole: what was loaded before an
// interruption is there, and is not moved again.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/load/weight.h"
#include "client/cpp/client.h"
#include "client/cpp/transfer.h"

namespace gemmd::cli {

struct LoadOptions {
  int jobs = 4;  // tensors at a time: one is hashed while another is moved
  absl::Duration ttl = absl::ZeroDuration();  // zero: names stay
  client::TransferOptions::Route route = client::TransferOptions::Route::kAuto;
  // Bytes of the files done so far, moved or found to be there; one call at a time, on any thread.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

// What became of a load, also of one that failed on the way.
struct LoadReport {
  int64_t weights = 0;      // of the checkpoint
  int64_t loaded = 0;       // moved and published
  int64_t found = 0;        // there already, with the same content
  int64_t moved_bytes = 0;  // of the weights that were moved
  int64_t found_bytes = 0;
  double seconds = 0;
  client::TransferReport transfers;  // all of them as one
};

// Blocks. The first failure ends it: what is published by then stays, and nothing is left of the
// rest. ALREADY_EXISTS when a name is taken by other content. `report` is filled either way.
absl::Status LoadWeights(client::Client& client, client::Session& session,
                         const std::vector<Weight>& weights, const LoadOptions& options,
                         LoadReport& report);

}  // namespace gemmd::cli
