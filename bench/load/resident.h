// A matmul whose matrices lie on the server already: what the benchmarks send again and again.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/quantize.h"
#include "client/cpp/session.h"

namespace gemmd::bench {

struct ResidentSpec {
  int64_t m = 16, n = 16, k = 16;
  client::DType dtype =
      client::DType::kF32;  // of A and B before quantisation: F32, BF16, F16, E4M3 or I8
  client::DType out_dtype = client::DType::kF32;
  cli::QuantizeMode quantize = cli::QuantizeModeOf("none");
  std::string kernel;
};

// A [rows, k] buffer of `dtype` with random values in [-1, 1); I8 gets -100 to 100.
absl::StatusOr<client::Buffer> RandomMatrix(client::Session& session, client::DType dtype,
                                            int64_t rows, int64_t k, int seed);

// Puts `matrix` quantised in its own place and returns the scales' buffer, of ScalesRoom.
absl::StatusOr<client::Buffer> QuantizeInPlace(client::Session& session, client::DType dtype,
                                               client::ScaleGranularity granularity,
                                               client::Buffer& matrix);

// What QuantizeInPlace made, as a matmul takes it. With kNone `scales` is not looked at.
client::Operand OperandOf(const client::Buffer& values, client::ScaleGranularity granularity,
                          const client::Buffer& scales);

// Move-only. Must go before its session.
struct ResidentMatmul {
  client::Buffer a, b;
  client::Buffer a_scales, b_scales;  // the scales as they lie, of ScalesRoom; op has the tensors
  client::Buffer d;
  client::Matmul op;
  client::OpList ops;  // op alone
  double flops = 0;

  client::OpList Repeated(int64_t count) const;
};

// Uploads random matrices in [-1, 1), B as [n, k], and quantises them on the device if the spec
// says so.
absl::StatusOr<ResidentMatmul> MakeResident(client::Session& session, const ResidentSpec& spec);

}  // namespace gemmd::bench
