#include "kernels/bench/cuda/workload.h"

#include <algorithm>

#include "kernels/bench/cuda/extents.h"
#include "kernels/bench/cuda/operands.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::AnyGemmArgs;
using cuda::GemmArgs;
using cuda::MatmulArgs;
using cuda::ToStatus;

constexpr int kNanByte = 0xff;  // four of them are a NaN in FP32, two in BF16

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

int64_t Workload::a_scale_floats() const {
  if (by_row()) return shape_.m;
  return blocks_ ? RoundUp4(shape_.m) * BlocksOf(shape_.k) : 0;
}
int64_t Workload::b_scale_floats() const {
  if (by_row()) return shape_.n;
  return blocks_ ? BlocksOf(shape_.n) * RoundUp4(BlocksOf(shape_.k)) : 0;
}

absl::Status Workload::Prepare(const Shape& s, uint64_t seed, bool with_bf16, int places,
                               cudaStream_t stream) {
  shape_ = s;
  used_ = 0;
  for (int i = 0; i < places; ++i) {
    if (static_cast<int>(places_.size()) == i) places_.emplace_back();
    if (absl::Status status = Reserve(places_[i], with_bf16); !status.ok()) return status;
    absl::Status status =
        i == 0 ? Fill(seed, with_bf16, stream) : CopyTo(places_[i], with_bf16, stream);
    if (!status.ok()) return status;
  }
  return ToStatus(cudaStreamSynchronize(stream), "making operands");
}

absl::Status Workload::Reserve(Place& place, bool with_bf16) {
  const Shape& s = shape_;
  for (absl::Status status :
       {ReserveUnits(place.a, a_bytes()), ReserveUnits(place.b, b_bytes()),
        ReserveUnits(place.a_scales, a_scale_floats() * 4),
        ReserveUnits(place.b_scales, b_scale_floats() * 4), ReserveUnits(one_, 4),
        ReserveUnits(sink_, 4), ReserveUnits(place.d, d_bytes() + 2 * kGuardBytes),
        dtype_ == DType::kI8 ? ReserveUnits(place.d_s32, 4 * s.m * s.n) : absl::OkStatus(),
        with_bf16 ? ReserveUnits(place.a_bf16, 2 * s.m * s.k) : absl::OkStatus(),
        with_bf16 ? ReserveUnits(place.b_bf16, 2 * s.n * s.k) : absl::OkStatus()}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Workload::Fill(uint64_t seed, bool with_bf16, cudaStream_t stream) {
  const Shape& s = shape_;
  const Place& to = here();
  const float one = 1.0f;
  const uint64_t seed_b = seed + 1;
  for (cudaError_t code :
       {cudaMemsetAsync(to.a_scales.data(), kNanByte, a_scale_floats() * 4, stream),
        cudaMemsetAsync(to.b_scales.data(), kNanByte, b_scale_floats() * 4, stream),
        cudaMemcpyAsync(one_.data(), &one, 4, cudaMemcpyHostToDevice, stream),
        FillOperands(seed, stream),
        with_bf16 ? RandomBf16(seed, s.m, s.k, to.a_bf16.as<uint16_t>(), stream) : cudaSuccess,
        with_bf16 ? RandomBf16(seed_b, s.n, s.k, to.b_bf16.as<uint16_t>(), stream) : cudaSuccess}) {
    if (code != cudaSuccess) return ToStatus(code, "making operands");
  }
  return absl::OkStatus();
}

cudaError_t Workload::FillOperands(uint64_t seed, cudaStream_t stream) {
  const Place& to = here();
  const GemmArgs args = operands();
  const auto either = [](cudaError_t x, cudaError_t y) { return x != cudaSuccess ? x : y; };
  const auto [m, n, k] = shape_;
  const BlockCode code = dtype_ == DType::kI8 ? BlockCode::kI8 : BlockCode::kE4M3;
  if (blocks_) {
    return either(QuantizeRandom1x128(seed, m, k, to.a.data(), to.a_scales.as<float>(),
                                      args.a_scales_ld, stream, code),
                  QuantizeRandom128x128(seed + 1, n, k, to.b.data(), to.b_scales.as<float>(),
                                        args.b_scales_ld, stream, code));
  }
  switch (dtype_) {
    case DType::kBF16:
      return either(RandomBf16(seed, m, k, to.a.as<uint16_t>(), stream),
                    RandomBf16(seed + 1, n, k, to.b.as<uint16_t>(), stream));
    case DType::kF16:
      return either(RandomF16(seed, m, k, to.a.as<uint16_t>(), stream),
                    RandomF16(seed + 1, n, k, to.b.as<uint16_t>(), stream));
    default:
      return either(
          QuantizeRandomRows(seed, m, k, to.a.data(), to.a_scales.as<float>(), stream, code),
          QuantizeRandomRows(seed + 1, n, k, to.b.data(), to.b_scales.as<float>(), stream, code));
  }
}

absl::Status Workload::CopyTo(Place& place, bool with_bf16, cudaStream_t stream) {
  const Shape& s = shape_;
  const Place& from = places_[0];
  const auto copy = [stream](const DeviceBuffer& to, const DeviceBuffer& source, int64_t bytes) {
    return cudaMemcpyAsync(to.data(), source.data(), bytes, cudaMemcpyDeviceToDevice, stream);
  };
  for (cudaError_t code :
       {copy(place.a, from.a, a_bytes()), copy(place.b, from.b, b_bytes()),
        copy(place.a_scales, from.a_scales, a_scale_floats() * 4),
        copy(place.b_scales, from.b_scales, b_scale_floats() * 4),
        with_bf16 ? copy(place.a_bf16, from.a_bf16, 2 * s.m * s.k) : cudaSuccess,
        with_bf16 ? copy(place.b_bf16, from.b_bf16, 2 * s.n * s.k) : cudaSuccess}) {
    if (code != cudaSuccess) return ToStatus(code, "copying operands");
  }
  return absl::OkStatus();
}

absl::Status Workload::Poison(cudaStream_t stream) {
  return ToStatus(cudaMemsetAsync(here().d.data(), kNanByte, d_bytes() + 2 * kGuardBytes, stream),
                  "poisoning the output");
}

GemmArgs Workload::plain() const {
  GemmArgs args;
  args.m = shape_.m;
  args.n = shape_.n;
  args.k = shape_.k;
  args.a = here().a.data();
  args.lda = shape_.k;
  args.a_scales = one_.as<float>();
  args.b = here().b.data();
  args.ldb = shape_.k;
  args.b_scales = one_.as<float>();
  args.d = d();
  args.ldd = shape_.n;
  return args;
}

GemmArgs Workload::operands() const {
  GemmArgs args = plain();
  if (dtype_ == DType::kF16) args.out = cuda::OutType::kF16;
  args.a_scales = args.b_scales = nullptr;
  if (dtype_ == DType::kBF16 || dtype_ == DType::kF16) return args;
  args.a_scales = here().a_scales.as<float>();
  args.b_scales = here().b_scales.as<float>();
  args.a_scales_ld = blocks_ ? RoundUp4(shape_.m) : 1;
  args.b_scales_ld = blocks_ ? RoundUp4(BlocksOf(shape_.k)) : 1;
  return args;
}

MatmulArgs Workload::integer_args() const {
  GemmArgs operands = plain();
  operands.d = here().d_s32.data();
  operands.a_scales = operands.b_scales = nullptr;
  MatmulArgs args = MatmulArgsOf(operands, DType::kI8);
  for (OperandTraits* side : {&args.problem.a, &args.problem.b}) {
    side->granularity = ScaleGranularity::kNone;
    side->scales.reset();
  }
  args.problem.d.dtype = DType::kI32;
  return args;
}

MatmulArgs Workload::tensor_args() const {
  MatmulArgs args = MatmulArgsOf(plain(), DType::kE4M3);
  for (OperandTraits* side : {&args.problem.a, &args.problem.b}) {
    side->granularity = ScaleGranularity::kPerTensor;
    side->scales.reset();
  }
  for (cuda::AnyOperand* side : {&args.gemm.a, &args.gemm.b}) side->scales = {one_.as<float>()};
  return args;
}

MatmulArgs Workload::bf16_args() const {
  GemmArgs operands = plain();
  operands.a = here().a_bf16.data();
  operands.b = here().b_bf16.data();
  operands.a_scales = operands.b_scales = nullptr;
  return MatmulArgsOf(operands, DType::kBF16);
}

FloorTraffic Workload::traffic() const {
  FloorTraffic traffic;
  traffic.source[0] = here().b.data();
  traffic.source_bytes[0] = b_bytes();
  traffic.source[1] = here().a.data();
  traffic.source_bytes[1] = a_bytes();
  traffic.source[2] = here().a_scales.data();
  traffic.source_bytes[2] = blocks_ ? shape_.m * BlocksOf(shape_.k) * 4 : a_scale_floats() * 4;
  traffic.source[3] = here().b_scales.data();
  traffic.source_bytes[3] =
      blocks_ ? BlocksOf(shape_.n) * BlocksOf(shape_.k) * 4 : b_scale_floats() * 4;
  traffic.target = d();
  traffic.target_bytes = d_bytes();
  traffic.sink = sink_.as<unsigned>();
  return traffic;
}

bool BlockScaled(const GemmArgs& args, DType dtype) {
  return SizeBytes(dtype) == 1 && args.b_scales_ld > 1;
}

namespace {

AnyGemmArgs AnyArgsOf(const GemmArgs& args, DType dtype) {
  const bool blocks = BlockScaled(args, dtype);
  AnyGemmArgs any;
  any.m = args.m;
  any.n = args.n;
  any.k = args.k;
  any.type = any.b_type = static_cast<cuda::ElementType>(dtype);
  any.a = {.data = args.a, .row_stride = args.lda, .scales = {.data = args.a_scales}};
  any.b = {.data = args.b, .row_stride = args.ldb, .scales = {.data = args.b_scales}};
  any.a.scales.row_stride = 1;
  any.a.scales.k_stride = blocks ? args.a_scales_ld : 0;
  any.b.scales.row_stride = args.b_scales_ld;
  any.b.scales.k_stride = blocks ? 1 : 0;
  any.b.scales.row_blocks = blocks;
  any.out = args.out == cuda::OutType::kF16 ? cuda::ElementType::kF16 : cuda::ElementType::kBF16;
  any.d = {.data = args.d, .row_stride = args.ldd};
  return any;
}

}  // namespace

MatmulProblem ProblemOf(const GemmArgs& args, DType dtype) {
  const bool blocks = BlockScaled(args, dtype);
  const ScaleGranularity rows =
      SizeBytes(dtype) == 1 ? ScaleGranularity::kPerRow : ScaleGranularity::kNone;
  const int64_t size = SizeBytes(dtype);
  MatmulProblem problem;
  problem.batch = args.batch;
  problem.m = args.m;
  problem.n = args.n;
  problem.k = args.k;
  problem.a = {dtype, blocks ? ScaleGranularity::kBlock1x128 : rows, Layout::kKContiguous, args.lda,
               AlignmentOf(args.a, args.m, args.lda * size)};
  problem.b = {dtype, blocks ? ScaleGranularity::kBlock128x128 : rows, Layout::kKContiguous,
               args.ldb, AlignmentOf(args.b, args.n, args.ldb * size)};
  problem.d = {dtype == DType::kF16 ? DType::kF16 : DType::kBF16, ScaleGranularity::kNone,
               Layout::kKContiguous, args.ldd, AlignmentOf(args.d, args.m, args.ldd * 2)};
  if (blocks) {
    problem.a.scales = ScaleTraits{.row_stride = 1, .k_stride = args.a_scales_ld};
    problem.b.scales = ScaleTraits{.row_stride = args.b_scales_ld, .k_stride = 1};
  }
  return problem;
}

MatmulArgs MatmulArgsOf(const GemmArgs& args, DType dtype) {
  return {ProblemOf(args, dtype), AnyArgsOf(args, dtype), std::nullopt};
}

}  // namespace gemmd::kernels::bench
