#include "kernels/bench/cuda/quantize_bench.h"

#include <cmath>
#include <vector>

#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/bench/cuda/extents.h"
#include "kernels/bench/cuda/floor.h"
#include "kernels/bench/cuda/operands.h"
#include "kernels/bench/cuda/quantize_check.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::QuantizeArgs;
using cuda::QuantizeBlock;
using cuda::ToStatus;

// Rounding to 3 bits of mantissa costs a uniform +-1/16 at worst; its root mean square is 0.026.
constexpr double kMaxRelError = 0.04;

struct QuantizeBuffers {
  DeviceBuffer source, values, scales, sums;
};

int64_t ScaleFloats(QuantizeBlock block, int64_t rows, int64_t k) {
  if (block == QuantizeBlock::kRow) return rows;
  return block == QuantizeBlock::k1x128 ? (rows + 3) / 4 * 4 * BlocksOf(k)
                                        : BlocksOf(rows) * BlocksOf(k);
}

absl::Status Fill(const QuantizeBuffers& b, int64_t rows, int64_t k, cudaStream_t stream) {
  for (cudaError_t code : {RandomBf16(1, rows, k, b.source.as<uint16_t>(), stream),
                           cudaMemsetAsync(b.values.data(), 0xff, b.values.size_bytes(), stream),
                           cudaMemsetAsync(b.scales.data(), 0xff, b.scales.size_bytes(), stream),
                           cudaMemsetAsync(b.sums.data(), 0, b.sums.size_bytes(), stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "making a source");
  }
  return absl::OkStatus();
}

QuantizeArgs ArgsOf(const QuantizeBuffers& b, int64_t rows, int64_t k, QuantizeBlock block,
                    bool int8) {
  QuantizeArgs args;
  args.rows = rows;
  args.k = k;
  args.src = b.source.data();
  args.src_row = k;
  args.dst = b.values.data();
  args.dst_row = k;
  args.dst_type = int8 ? cuda::ElementType::kI8 : cuda::ElementType::kE4M3;
  args.scales = b.scales.as<float>();
  args.block = block;
  if (block != QuantizeBlock::k128x128) {
    args.scales_row = 1;
    args.scales_k = block == QuantizeBlock::kRow ? 0 : (rows + 3) / 4 * 4;
  } else {
    args.scales_row = BlocksOf(k);
    args.scales_k = 1;
  }
  return args;
}

absl::StatusOr<double> RelError(const QuantizeBuffers& b, const QuantizeArgs& args,
                                cudaStream_t stream) {
  const QuantizedMatrix matrix{b.source.as<uint16_t>(),
                               b.values.data(),
                               b.scales.as<float>(),
                               args.rows,
                               args.k,
                               args.block == QuantizeBlock::k128x128 ? 128 : 1,
                               args.scales_row,
                               args.scales_k,
                               args.dst_type == cuda::ElementType::kI8};
  double sums[2] = {};
  for (cudaError_t code :
       {AddQuantizeErrors(matrix, b.sums.as<double>(), stream),
        cudaMemcpyAsync(sums, b.sums.data(), sizeof(sums), cudaMemcpyDeviceToHost, stream),
        cudaStreamSynchronize(stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "comparing with the source");
  }
  return std::sqrt(sums[0] / sums[1]);
}

}  // namespace

absl::StatusOr<QuantizeResult> BenchQuantize(Machine& machine, int64_t rows, int64_t k,
                                             QuantizeBlock block, bool int8, int repeats) {
  QuantizeResult result;
  result.rows = rows;
  result.k = k;
  result.block = block == QuantizeBlock::kRow     ? "row"
                 : block == QuantizeBlock::k1x128 ? "1x128"
                                                  : "128x128";
  if (int8) result.block += " i8";
  QuantizeBuffers b;
  const int64_t scale_bytes = ScaleFloats(block, rows, k) * 4;
  for (absl::Status status : {b.source.Reserve(rows * k * 2), b.values.Reserve(rows * k),
                              b.scales.Reserve(scale_bytes + 256), b.sums.Reserve(256)}) {
    if (!status.ok()) return status;
  }
  if (absl::Status s = Fill(b, rows, k, machine.stream); !s.ok()) return s;
  const QuantizeArgs args = ArgsOf(b, rows, k, block, int8);
  std::vector<Call> calls = {[args](cudaStream_t stream) {
    return ToStatus(cuda::LaunchQuantize(args, stream), "quantize");
  }};
  if (absl::Status s = calls[0](machine.stream); !s.ok()) return s;
  if (absl::Status s = WaitIdle(machine.stream); !s.ok()) return s;
  absl::StatusOr<double> error = RelError(b, args, machine.stream);
  if (!error.ok()) return error.status();
  result.rel_error = *error;
  result.right = *error < kMaxRelError;  // false for NaN
  if (!result.right) return result;
  FloorTraffic traffic;
  traffic.source[0] = b.source.data();
  traffic.source_bytes[0] = rows * k * 2;
  traffic.target = b.values.data();
  traffic.target_bytes = rows * k;
  traffic.sink = b.sums.as<unsigned>();
  for (const FloorConfig& config : kFloorConfigs) {
    calls.push_back([config, traffic, sms = machine.traits.sms](cudaStream_t stream) {
      return ToStatus(LaunchFloor(config, traffic, sms, stream), "the floor kernel");
    });
  }

  absl::StatusOr<std::vector<std::vector<double>>> seconds = machine.timer->Time(calls, repeats);
  if (!seconds.ok()) return seconds.status();
  result.us = Median((*seconds)[0]) * 1e6;
  result.us_p10 = Percentile((*seconds)[0], 0.1) * 1e6;
  result.us_p90 = Percentile((*seconds)[0], 0.9) * 1e6;
  for (size_t i = 1; i < calls.size(); ++i) {
    const double us = Median((*seconds)[i]) * 1e6;
    if (i == 1 || us < result.floor_us) result.floor_us = us;
  }
  return result;
}

}  // namespace gemmd::kernels::bench
