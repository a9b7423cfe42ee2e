#include "kernels/bench/cuda/f16_workload.h"

#include <algorithm>
#include <cmath>

#include "kernels/bench/cuda/operands.h"
#include "kernels/bench/cuda/workload.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::ToStatus;

constexpr int64_t kGuardWords = Workload::kGuardBytes / 2;  // beyond D

}  // namespace

absl::Status F16Workload::Prepare(const Shape& shape, uint64_t seed, cudaStream_t stream) {
  shape_ = shape;
  reference_of_ = {};
  for (absl::Status status :
       {a_.Reserve(std::max<int64_t>(shape.m * shape.k, 1) * 2),
        b_.Reserve(std::max<int64_t>(shape.n * shape.k, 1) * 2),
        d_.Reserve((shape.m * shape.n + kGuardWords) * 2), counters_.Reserve(sizeof(Counters))}) {
    if (!status.ok()) return status;
  }
  for (cudaError_t code : {RandomF16(seed, shape.m, shape.k, a_.as<uint16_t>(), stream),
                           RandomF16(seed + 1, shape.n, shape.k, b_.as<uint16_t>(), stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "making operands");
  }
  return absl::OkStatus();
}

cuda::GemmArgs F16Workload::args(const Shape& part) const {
  cuda::GemmArgs args;
  args.m = part.m;
  args.n = part.n;
  args.k = part.k;
  args.a = a_.data();
  args.lda = shape_.k;
  args.b = b_.data();
  args.ldb = shape_.k;
  args.d = d_.data();
  args.ldd = part.n;
  args.out = cuda::OutType::kF16;
  return args;
}

absl::Status F16Workload::MakeReference(const Shape& part, cudaStream_t stream) {
  if (part == reference_of_) return absl::OkStatus();
  const int64_t step = std::max<int64_t>(1, std::ceil(part.flops() / Checker::kMaxReferenceFlops));
  rows_ = {nullptr, (part.m + step - 1) / step, step};
  absl::Status status =
      reference_.Reserve(std::max<int64_t>(rows_.rows * part.n, 1) * sizeof(double));
  if (!status.ok()) return status;
  rows_.reference = reference_.as<double>();
  const cudaError_t code = ComputeReference(args(part), cuda::ElementType::kF16, rows_, stream);
  if (code != cudaSuccess) return ToStatus(code, "computing the reference");
  reference_of_ = part;
  return WaitIdle(stream);
}

absl::StatusOr<Errors> F16Workload::Check(const Shape& part, const Call& call,
                                          cudaStream_t stream) {
  if (absl::Status status = MakeReference(part, stream); !status.ok()) return status;
  const int64_t words = shape_.m * shape_.n + kGuardWords;
  const int64_t own = part.m * part.n;
  for (cudaError_t code : {cudaMemsetAsync(d_.data(), 0xff, words * 2, stream),
                           cudaMemsetAsync(counters_.data(), 0, sizeof(Counters), stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "poisoning the output");
  }
  if (absl::Status status = call(stream); !status.ok()) return status;
  if (absl::Status status = WaitIdle(stream); !status.ok()) return status;
  Counters* counters = counters_.as<Counters>();
  Counters out;
  for (cudaError_t code :
       {AddErrors(args(part), rows_, &counters->sums, stream),
        CountDiffering(d_.as<uint16_t>() + own, nullptr, words - own, &counters->stray_words,
                       stream),
        cudaMemcpyAsync(&out, counters, sizeof(out), cudaMemcpyDeviceToHost, stream),
        cudaStreamSynchronize(stream)}) {
    if (code != cudaSuccess) return ToStatus(code, "comparing with the reference");
  }
  return ErrorsOf(out.sums, out.stray_words);
}

}  // namespace gemmd::kernels::bench
