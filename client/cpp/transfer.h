// How bytes move between the caller's memory and a buffer, and what was seen on the way.
//
// With the daemon on this host (its share socket answers) bytes go through shared memory: straight
// into the mapping of a kHostShared buffer, and for a kDevice one of 1 MiB and more through a
// staging buffer and Copy ops. Otherwise they go by gRPC in chunks, each with its CRC32C, sent from
// the caller's memory without a copy; a cut stream resumes where the bytes got to.

#pragma once

#include <cstdint>
#include <functional>

#include "absl/strings/string_view.h"
#include "client/cpp/options.h"

namespace gemmd::client {

enum class TransferPath { kGrpc, kShm };

// "grpc" or "shm".
absl::string_view Name(TransferPath path);

struct TransferOptions {
  int64_t chunk_bytes = 1 << 20;  // of one gRPC message; 4 KiB to 3 MiB
  // Threads that copy to and from shared memory or take checksums, the calling one included; none
  // outlives the transfer. 0: half of the machine's cores, 8 at most.
  int copy_threads = 0;
  // Called on the calling thread after each chunk, with the bytes done so far of `total`. After a
  // resume `done` may fall back to what the server has committed.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};
  using Route = client::Route;
  Route route = Route::kAuto;
  CallOptions call = {};
};

struct TransferReport {
  TransferPath path = TransferPath::kGrpc;
  int64_t bytes = 0;
  double seconds = 0;  // here, first byte to last
  int resumes = 0;     // streams that broke on the way
};

}  // namespace gemmd::client
