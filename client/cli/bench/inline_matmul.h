// A resident matmul whose activations come with each request and whose result goes with its answer.

#ifndef GEMMD_CLIENT_CLI_BENCH_INLINE_MATMUL_H_
#define GEMMD_CLIENT_CLI_BENCH_INLINE_MATMUL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench/resident.h"

namespace gemmd::cli {

struct InlineMatmul {
  client::OpList ops;
  std::vector<std::string> inputs;  // of its Writes
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
};

// What `resident` has as A, and its scales, becomes the data of the request.
absl::StatusOr<InlineMatmul> MakeInline(const ResidentMatmul& resident);

}  // namespace gemmd::cli

#endif  // GEMMD_CLIENT_CLI_BENCH_INLINE_MATMUL_H_
