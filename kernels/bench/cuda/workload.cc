#include "kernels/bench/cuda/workload.h"

#include <algorithm>

#include "kernels/bench/cuda/operands.h"
#include "kernels/cuda/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::Fp8GemmArgs;
using cuda::ToStatus;

constexpr int kNanByte = 0xff;  // four of them are a NaN in FP32, two in BF16

int64_t BlocksOf(int64_t x) { return (x + 127) / 128; }
int64_t RoundUp4(int64_t x) { return (x + 3) / 4 * 4; }
int64_t ScaleFloatsOfA(const Shape& s) { return RoundUp4(s.m) * BlocksOf(s.k); }
int64_t ScaleFloatsOfB(const Shape& s) { return BlocksOf(s.n) * RoundUp4(BlocksOf(s.k)); }

// The floor kernel reads whole units of 16 bytes.
absl::Status ReserveUnits(DeviceBuffer& buffer, int64_t size_bytes) {
  return buffer.Reserve(std::max<int64_t>(size_bytes, 1) + 256);
}

int AlignmentOf(const void* base, int64_t rows, int64_t stride_bytes) {
  const uint64_t bits =
      reinterpret_cast<uint64_t>(base) | (rows > 1 ? static_cast<uint64_t>(stride_bytes) : 0) | 256;
  return static_cast<int>(bits & -bits);
}

}  // namespace

absl::Status Workload::Prepare(const Shape& s, uint64_t seed, bool with_bf16, cudaStream_t stream) {
  shape_ = s;
  const int64_t a_scale_bytes = ScaleFloatsOfA(s) * 4;
  const int64_t b_scale_bytes = ScaleFloatsOfB(s) * 4;
  for (absl::Status status :
       {ReserveUnits(a_, s.m * s.k), ReserveUnits(b_, s.n * s.k),
        ReserveUnits(a_scales_, a_scale_bytes), ReserveUnits(b_scales_, b_scale_bytes),
        ReserveUnits(one_, 4), ReserveUnits(sink_, 4),
        ReserveUnits(d_, d_bytes() + 2 * kGuardBytes),
        with_bf16 ? ReserveUnits(a_bf16_, 2 * s.m * s.k) : absl::OkStatus(),
        with_bf16 ? ReserveUnits(b_bf16_, 2 * s.n * s.k) : absl::OkStatus()}) {
    if (!status.ok()) return status;
  }
  const Fp8GemmArgs args = block_args();
  const float one = 1.0f;
  const uint64_t seed_b = seed + 1;
  for (cudaError_t code :
       {cudaMemsetAsync(a_scales_.data(), kNanByte, a_scale_bytes, stream),
        cudaMemsetAsync(b_scales_.data(), kNanByte, b_scale_bytes, stream),
        cudaMemcpyAsync(one_.data(), &one, 4, cudaMemcpyHostToDevice, stream),
        QuantizeRandom1x128(seed, s.m, s.k, a_.data(), a_scales_.as<float>(), args.a_scales_ld,
                            stream),
        QuantizeRandom128x128(seed_b, s.n, s.k, b_.data(), b_scales_.as<float>(), args.b_scales_ld,
                              stream),
        with_bf16 ? RandomBf16(seed, s.m, s.k, a_bf16_.as<uint16_t>(), stream) : cudaSuccess,
        with_bf16 ? RandomBf16(seed_b, s.n, s.k, b_bf16_.as<uint16_t>(), stream) : cudaSuccess,
        cudaStreamSynchronize(stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "making operands");
  }
  return absl::OkStatus();
}

absl::Status Workload::Poison(cudaStream_t stream) {
  return ToStatus(cudaMemsetAsync(d_.data(), kNanByte, d_bytes() + 2 * kGuardBytes, stream),
                  "poisoning the output");
}

Fp8GemmArgs Workload::block_args() const {
  Fp8GemmArgs args = tensor_args();
  args.a_scales = a_scales_.as<float>();
  args.a_scales_ld = RoundUp4(shape_.m);
  args.b_scales = b_scales_.as<float>();
  args.b_scales_ld = RoundUp4(BlocksOf(shape_.k));
  return args;
}

Fp8GemmArgs Workload::tensor_args() const {
  Fp8GemmArgs args;
  args.m = shape_.m;
  args.n = shape_.n;
  args.k = shape_.k;
  args.a = a_.data();
  args.lda = shape_.k;
  args.a_scales = one_.as<float>();
  args.b = b_.data();
  args.ldb = shape_.k;
  args.b_scales = one_.as<float>();
  args.d = d();
  args.ldd = shape_.n;
  return args;
}

Fp8GemmArgs Workload::bf16_args() const {
  Fp8GemmArgs args = tensor_args();
  args.a = a_bf16_.data();
  args.b = b_bf16_.data();
  args.a_scales = nullptr;
  args.b_scales = nullptr;
  return args;
}

FloorTraffic Workload::traffic() const {
  FloorTraffic traffic;
  traffic.source[0] = b_.data();
  traffic.source_bytes[0] = shape_.n * shape_.k;
  traffic.source[1] = a_.data();
  traffic.source_bytes[1] = shape_.m * shape_.k;
  traffic.source[2] = a_scales_.data();
  traffic.source_bytes[2] = shape_.m * BlocksOf(shape_.k) * 4;
  traffic.source[3] = b_scales_.data();
  traffic.source_bytes[3] = BlocksOf(shape_.n) * BlocksOf(shape_.k) * 4;
  traffic.target = d();
  traffic.target_bytes = d_bytes();
  traffic.sink = sink_.as<unsigned>();
  return traffic;
}

MatmulProblem ProblemOf(const Fp8GemmArgs& args) {
  MatmulProblem problem;
  problem.batch = args.batch;
  problem.m = args.m;
  problem.n = args.n;
  problem.k = args.k;
  problem.a = {DType::kE4M3, ScaleGranularity::kBlock1x128, Layout::kKContiguous, args.lda,
               AlignmentOf(args.a, args.m, args.lda)};
  problem.b = {DType::kE4M3, ScaleGranularity::kBlock128x128, Layout::kKContiguous, args.ldb,
               AlignmentOf(args.b, args.n, args.ldb)};
  problem.d = {DType::kBF16, ScaleGranularity::kNone, Layout::kKContiguous, args.ldd,
               AlignmentOf(args.d, args.m, args.ldd * 2)};
  return problem;
}

}  // namespace gemmd::kernels::bench
