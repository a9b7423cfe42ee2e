#include "kernels/bench/cuda/gated_bench.h"

#include <vector>

#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/bench/cuda/floor.h"
#include "kernels/bench/cuda/operands.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/ops/gated.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::GatedArgs;
using cuda::ToStatus;

struct GatedBuffers {
  DeviceBuffer source, values, scales, sink;
};

int64_t ScaleFloats(int64_t rows, int64_t n) { return (rows + 3) / 4 * 4 * ((n + 127) / 128); }

GatedArgs ArgsOf(const GatedBuffers& b, int64_t rows, int64_t n) {
  GatedArgs args;
  args.rows = rows;
  args.n = n;
  args.src = b.source.data();
  args.src_row = 2 * n;
  args.dst = b.values.data();
  args.dst_row = n;
  args.scales = b.scales.as<float>();
  args.scales_row = 1;
  args.scales_block = (rows + 3) / 4 * 4;
  args.period = n;
  return args;
}

// What `launch` leaves in poisoned values and scales, one behind the other.
absl::StatusOr<std::vector<uint8_t>> Results(const GatedBuffers& b, const GatedArgs& args,
                                             cudaError_t (*launch)(const GatedArgs&, cudaStream_t),
                                             cudaStream_t stream) {
  const size_t values = args.rows * args.n;
  const size_t scales = ScaleFloats(args.rows, args.n) * 4;
  std::vector<uint8_t> bytes(values + scales);
  for (cudaError_t code :
       {cudaMemsetAsync(b.values.data(), 0xff, values, stream),
        cudaMemsetAsync(b.scales.data(), 0xff, scales, stream), launch(args, stream),
        cudaMemcpyAsync(bytes.data(), b.values.data(), values, cudaMemcpyDeviceToHost, stream),
        cudaMemcpyAsync(bytes.data() + values, b.scales.data(), scales, cudaMemcpyDeviceToHost,
                        stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "gated");
  }
  if (absl::Status s = WaitIdle(stream); !s.ok()) return s;
  return bytes;
}

std::vector<Call> CallsOf(const GatedBuffers& b, const GatedArgs& args, int sms) {
  std::vector<Call> calls = {
      [args](cudaStream_t stream) { return ToStatus(cuda::LaunchGated(args, stream), "gated"); }};
  FloorTraffic traffic;
  traffic.source[0] = b.source.data();
  traffic.source_bytes[0] = args.rows * args.n * 4;
  traffic.target = b.values.data();
  traffic.target_bytes = args.rows * args.n;
  traffic.sink = b.sink.as<unsigned>();
  for (const FloorConfig& config : kFloorConfigs) {
    calls.push_back([config, traffic, sms](cudaStream_t stream) {
      return ToStatus(LaunchFloor(config, traffic, sms, stream), "the floor kernel");
    });
  }
  return calls;
}

}  // namespace

absl::StatusOr<QuantizeResult> BenchGated(Machine& machine, int64_t rows, int64_t n, int repeats) {
  QuantizeResult result;
  result.rows = rows;
  result.k = n;
  result.block = "gated";
  GatedBuffers b;
  for (absl::Status status : {b.source.Reserve(rows * n * 4), b.values.Reserve(rows * n),
                              b.scales.Reserve(ScaleFloats(rows, n) * 4), b.sink.Reserve(256)}) {
    if (!status.ok()) return status;
  }
  const cudaError_t made = RandomBf16(1, rows, 2 * n, b.source.as<uint16_t>(), machine.stream);
  if (made != cudaSuccess) return ToStatus(made, "making a source");
  const GatedArgs args = ArgsOf(b, rows, n);
  const auto expected = Results(b, args, cuda::LaunchGatedAny, machine.stream);
  if (!expected.ok()) return expected.status();
  const auto bytes = Results(b, args, cuda::LaunchGated, machine.stream);
  if (!bytes.ok()) return bytes.status();
  result.right = *bytes == *expected;
  if (!result.right) return result;
  const auto seconds = machine.timer->Time(CallsOf(b, args, machine.traits.sms), repeats);
  if (!seconds.ok()) return seconds.status();
  result.us = Median((*seconds)[0]) * 1e6;
  result.us_p10 = Percentile((*seconds)[0], 0.1) * 1e6;
  result.us_p90 = Percentile((*seconds)[0], 0.9) * 1e6;
  for (size_t i = 1; i < seconds->size(); ++i) {
    const double us = Median((*seconds)[i]) * 1e6;
    if (i == 1 || us < result.floor_us) result.floor_us = us;
  }
  return result;
}

}  // namespace gemmd::kernels::bench
