// The caller's side of the echo server, by the plainest stubs.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gemmd::bench {

// Thread-safe.
class EchoClient {
 public:
  explicit EchoClient(const std::string& target);
  ~EchoClient();

  // One round trip of a message of `bytes`, answered with as many or with `reply_bytes`.
  absl::Status Unary(int64_t bytes, int64_t reply_bytes = 0);

  // Messages a second over a bidi stream, `depth` of them sent and not yet answered, for about
  // `duration`.
  absl::StatusOr<double> StreamRate(int64_t bytes, int depth, absl::Duration duration);

  // Bytes a second of a client stream of raw buffers of `chunk_bytes`, pointing into `data`.
  absl::StatusOr<double> SinkRate(absl::string_view data, int64_t chunk_bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gemmd::bench
