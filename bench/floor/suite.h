// `gemmd_bench floor`: what the daemon costs on top of the bare parts that it is made of.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/floor/echo_client.h"
#include "bench/floor/peer_process.h"
#include "bench/floor/ratio.h"
#include "bench/floor/run_python.h"
#include "client/cpp/client.h"

namespace gemmd::bench {

// What the measurements share. Owns nothing.
struct Floor {
  client::Client& client;
  client::Session& session;
  EchoClient& echo;
  PeerProcess& peer;
  std::string target;  // the daemon's
  PythonClient python;
};

// Each group is one file. A failure to set up is an error; a failing measurement a missing ratio.
absl::StatusOr<std::vector<Ratio>> MeasureLatencies(
    const Floor& floor);  // Execute and Queue against echoes
absl::StatusOr<std::vector<Ratio>> MeasureUploads(const Floor& floor);  // gRPC and shared memory
absl::StatusOr<std::vector<Ratio>> MeasureMatmuls(const Floor& floor);  // against OpenBLAS
absl::StatusOr<std::vector<Ratio>> MeasurePython(
    const Floor& floor);  // Python's client against this one

// All of them, in this order. `announce` is told what is being measured.
absl::StatusOr<std::vector<Ratio>> MeasureFloor(
    const Floor& floor, const std::function<void(const std::string&)>& announce);

// The median time of an Execute of a tiny resident matmul, over about 1000 calls.
absl::StatusOr<double> ExecuteTinySeconds(client::Session& session, const client::OpList& ops);

}  // namespace gemmd::bench
