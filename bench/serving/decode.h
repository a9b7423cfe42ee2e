// The matmuls of one decode step of a large model, resident on the daemon: what the plan of the
// serving suite is made of.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/sizes.h"
#include "client/cpp/session.h"

namespace gemmd::bench {

// Move-only. Must go before its session.
struct DecodeStep {
  // Layer after layer, each projection's activations quantised and multiplied by that layer's own
  // weights; a projection reads what the one before wrote where the lengths agree.
  client::OpList ops;
  // The same ops sorted: all quantisations of the first projection, all its matmuls, and so on.
  struct Kind {
    std::string name;  // "64x2112x7168 quantize", "64x2112x7168 matmul"
    client::OpList ops;
  };
  std::vector<Kind> kinds;
  int64_t weight_bytes = 0;

  std::vector<client::Buffer> buffers;
};

// FP8 weights with a scale a block of 128x128, BF16 activations quantised in blocks of 1x128. One
// random matrix a projection, copied on the device to every layer.
absl::StatusOr<DecodeStep> MakeDecodeStep(client::Session& session, const ServingSizes& sizes);

}  // namespace gemmd::bench
