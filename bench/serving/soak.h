// `gemmd_bench soak`: many mixed ops, and what the daemon holds before and after them.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/figure.h"
#include "client/cpp/client.h"

namespace gemmd::bench {

struct SoakSpec {
  std::string target;
  client::ClientOptions options;  // of the workers' connections
  std::string device;
  std::string share_socket;
  int64_t ops = 200000;
  int workers = 4;
};

// Five times a fifth of `ops`, with a look at the daemon after each, when no session is open. What
// has grown is judged from the second look to the last: until then caches, pools and the
// allocator's arenas fill to where they stay. The first failure of a worker is the error.
absl::StatusOr<std::vector<Figure>> MeasureSoak(
    client::Client& client, const SoakSpec& spec,
    const std::function<void(const std::string&)>& announce);

}  // namespace gemmd::bench
