// What one request of `gemmd_bench load` is.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/load/resident.h"
#include "client/cpp/client.h"

namespace gemmd::bench {

inline constexpr absl::string_view kModeNames[] = {"execute",     "inline", "queue",   "plan",
                                                   "plan-inline", "upload", "download"};

struct WorkloadSpec {
  absl::string_view mode = "execute";  // one of kModeNames
  int workers = 1;
  ResidentSpec matmul;
  std::string device;
  int64_t transfer_bytes = 16 << 20;           // modes upload and download: of one request
  client::Route route = client::Route::kAuto;  // these modes and inline: how bytes travel
};

// Made ready for its workers: sessions open, matrices resident. In the modes execute, inline,
// plan, upload and download each worker has a session of its own; in the mode queue they share one
// queue, so that the concurrency is the number of batches in flight.
class Workload {
 public:
  virtual ~Workload() = default;
  // One request, answered. Thread-safe for different workers.
  virtual absl::Status Request(int worker) = 0;
  // What one request does.
  virtual double flops() const { return 0; }
  virtual int64_t bytes() const { return 0; }
  // Bytes of a message each way, as the bare echo's must be to compare.
  virtual int64_t message_bytes() const { return 250; }
  virtual int64_t reply_bytes() const { return 250; }
  // Mean time on the device of the requests so far, as the server reports it; 0 for transfers.
  virtual double mean_device_seconds() const { return 0; }
};

absl::StatusOr<std::unique_ptr<Workload>> MakeWorkload(client::Client& client,
                                                       const WorkloadSpec& spec);

}  // namespace gemmd::bench
