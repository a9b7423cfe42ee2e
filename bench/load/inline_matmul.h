// A resident matmul whose activations come with each request and whose result goes with its answer.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/load/resident.h"

namespace gemmd::bench {

struct InlineMatmul {
  client::OpList ops;
  std::vector<std::string> inputs;  // of its Writes
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
};

// What `resident` has as A, and its scales, becomes the data of the request.
absl::StatusOr<InlineMatmul> MakeInline(const ResidentMatmul& resident);

}  // namespace gemmd::bench
