// How much the serving suite does: as much as its figures need, or as little as shows that it
// works.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace gemmd::bench {

struct MatmulSize {
  int64_t m = 0, n = 0, k = 0;
};

struct ServingSizes {
  MatmulSize unary{64, 4096, 7168};  // of one Execute; also what tenants and workers send
  MatmulSize queued{128, 7168, 2048};
  int queued_ops = 16;  // matmuls of a message

  int layers = 61;
  int64_t plan_rows = 64;
  // The projections of a layer, {n, k}: into the latents of attention, out of it, into a
  // feed-forward block and out of it.
  std::vector<MatmulSize> projections = {
      {0, 2112, 7168}, {0, 7168, 16384}, {0, 4096, 7168}, {0, 7168, 2048}};

  int64_t upload_bytes = 256 << 20;
  int64_t device_copy_bytes = 1 << 30;
  double small_program_seconds = 20e-6;
  double large_program_seconds = 5e-3;
  int workers = 8;

  int rounds = 7;       // of ours and theirs in turns
  int calls = 1000;     // of a round
  int plan_runs = 300;  // one by one, and again as a queue
  absl::Duration warm_up = absl::Milliseconds(300);
  absl::Duration duration = absl::Seconds(2);  // of what is measured by the clock
};

// The same steps in seconds on a CPU. Figures of it mean nothing.
inline ServingSizes QuickSizes() {
  ServingSizes sizes;
  sizes.unary = {16, 64, 256};
  sizes.queued = {16, 64, 128};
  sizes.layers = 2;
  sizes.plan_rows = 16;
  sizes.projections = {{0, 64, 256}, {0, 256, 128}, {0, 128, 256}, {0, 192, 128}};
  sizes.upload_bytes = 4 << 20;
  sizes.device_copy_bytes = 4 << 20;
  sizes.large_program_seconds = 500e-6;
  sizes.workers = 3;
  sizes.rounds = 2;
  sizes.calls = 20;
  sizes.plan_runs = 10;
  sizes.warm_up = absl::Milliseconds(20);
  sizes.duration = absl::Milliseconds(100);
  return sizes;
}

}  // namespace gemmd::bench
