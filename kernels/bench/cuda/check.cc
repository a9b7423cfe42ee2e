#include "kernels/bench/cuda/check.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::ToStatus;

}  // namespace

Errors ErrorsOf(const ErrorSums& sums, uint64_t stray_words) {
  Errors errors;
  errors.stray_words = stray_words;
  if (sums.xx == 0 && sums.yy == 0) return errors;  // nothing, or all zeros: no direction to err in
  errors.calc_diff = 1 - 2 * sums.xy / (sums.xx + sums.yy);
  errors.rel_error = std::sqrt(sums.dd / sums.yy);
  return errors;
}

bool Errors::ok() const {
  return calc_diff < Checker::kMaxCalcDiff && rel_error < Checker::kMaxRelError && stray_words == 0;
}

absl::Status Checker::Prepare(const Workload& workload) {
  const Shape& shape = workload.shape();
  const int64_t step = std::max<int64_t>(1, std::ceil(shape.flops() / kMaxReferenceFlops));
  rows_.rows = (shape.m + step - 1) / step;
  rows_.row_step = step;
  for (absl::Status status :
       {reference_.Reserve(std::max<int64_t>(rows_.rows * shape.n, 1) * sizeof(double)),
        counters_.Reserve(sizeof(Counters))}) {
    if (!status.ok()) return status;
  }
  rows_.reference = reference_.as<double>();
  const cudaError_t code =
      ComputeReference(workload.operands(), workload.element(), rows_, stream_);
  if (code != cudaSuccess) return ToStatus(code, "computing the reference");
  return WaitIdle(stream_);
}

absl::Status Checker::PoisonAndCall(Workload& workload, const Call& call) {
  if (absl::Status status = workload.Poison(stream_); !status.ok()) return status;
  if (absl::Status status = call(stream_); !status.ok()) return status;
  return WaitIdle(stream_);
}

absl::Status Checker::ClearCounters() {
  return ToStatus(cudaMemsetAsync(counters_.data(), 0, sizeof(Counters), stream_),
                  "clearing the counters");
}

absl::StatusOr<Checker::Counters> Checker::ReadCounters() {
  Counters out;
  for (cudaError_t code :
       {cudaMemcpyAsync(&out, counters_.data(), sizeof(out), cudaMemcpyDeviceToHost, stream_),
        cudaStreamSynchronize(stream_)}) {
    if (code != cudaSuccess) return ToStatus(code, "reading the counters");
  }
  return out;
}

absl::StatusOr<Errors> Checker::Check(Workload& workload, const Call& call) {
  if (absl::Status status = PoisonAndCall(workload, call); !status.ok()) return status;
  if (absl::Status status = ClearCounters(); !status.ok()) return status;
  constexpr int64_t kGuardWords = Workload::kGuardBytes / 2;
  const uint16_t* d = workload.d();
  for (cudaError_t code :
       {AddErrors(workload.operands(), rows_, &counters()->sums, stream_),
        CountDiffering(d - kGuardWords, nullptr, kGuardWords, &counters()->words, stream_),
        CountDiffering(d + workload.d_bytes() / 2, nullptr, kGuardWords, &counters()->words,
                       stream_)}) {
    if (code != cudaSuccess) return ToStatus(code, "comparing with the reference");
  }
  absl::StatusOr<Counters> counters = ReadCounters();
  if (!counters.ok()) return counters.status();
  return ErrorsOf(counters->sums, counters->words);
}

absl::StatusOr<uint64_t> Checker::CountChanging(Workload& workload, const Call& call, int runs) {
  if (absl::Status status = first_.Reserve(std::max<int64_t>(workload.d_bytes(), 1));
      !status.ok()) {
    return status;
  }
  if (absl::Status status = PoisonAndCall(workload, call); !status.ok()) return status;
  const cudaError_t copied = cudaMemcpyAsync(first_.data(), workload.d(), workload.d_bytes(),
                                             cudaMemcpyDeviceToDevice, stream_);
  if (copied != cudaSuccess) return ToStatus(copied, "keeping the first result");
  if (absl::Status status = ClearCounters(); !status.ok()) return status;
  for (int run = 1; run < runs; ++run) {
    if (absl::Status status = PoisonAndCall(workload, call); !status.ok()) return status;
    const cudaError_t code = CountDiffering(workload.d(), first_.as<uint16_t>(),
                                            workload.d_bytes() / 2, &counters()->words, stream_);
    if (code != cudaSuccess) return ToStatus(code, "comparing two results");
  }
  absl::StatusOr<Counters> counters = ReadCounters();
  if (!counters.ok()) return counters.status();
  return counters->words;
}

}  // namespace gemmd::kernels::bench
