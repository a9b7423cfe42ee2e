#include "kernels/bench/cuda/measure.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::CublasLtKind;
using cuda::ToStatus;

constexpr int kQuickRepeats = 5;  // of a sweep's first pass, and of choosing the floor's grid
// Of a sweep, timed in earnest. Tables of several processes keep what all of them have: near ties
// must be among it each time.
constexpr size_t kKeptVariants = 16;

absl::Status Prefixed(const absl::Status& status, std::string_view what) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(Text(what), ": ", status.message()));
}

// After these nothing more runs in this process.
bool LosesDevice(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

std::string Describe(const Errors& e) {
  std::string text =
      absl::StrFormat("calc_diff %.2e (limit %.0e), relative error %.2e (limit %.0e)", e.calc_diff,
                      Checker::kMaxCalcDiff, e.rel_error, Checker::kMaxRelError);
  if (e.stray_words != 0) {
    absl::StrAppend(&text, "; ", e.stray_words, " words beside the result were written");
  }
  return text;
}

}  // namespace

ShapeResult ShapeRunner::Run(const Shape& shape) {
  ShapeResult result;
  result.shape = shape;
  result.outcome = Outcome::kOk;
  const absl::Status status = Measure(result);
  plans_.clear();
  if (!status.ok()) {
    result.outcome = status.code() == absl::StatusCode::kUnimplemented ? Outcome::kRefused
                     : status.code() == absl::StatusCode::kDataLoss    ? Outcome::kWrong
                                                                       : Outcome::kFailed;
    result.message = std::string(status.message());
    device_lost_ = LosesDevice(status);
  }
  return result;
}

absl::Status ShapeRunner::Measure(ShapeResult& result) {
  const bool bf16 = machine_.cublaslt.has_value() && !options_.check_only;
  if (absl::Status s = workload_.Prepare(result.shape, options_.seed, bf16, machine_.stream);
      !s.ok()) {
    return s;
  }
  absl::StatusOr<std::vector<Entry>> listed =
      ListEntries(options_, choosers_, machine_.traits, workload_, result);
  if (!listed.ok()) return listed.status();
  std::vector<Entry> entries = *std::move(listed);
  if (absl::Status s = checker_.Prepare(workload_); !s.ok()) return s;
  result.checked_rows = checker_.checked_rows();
  if (absl::Status s = CheckEntries(result, entries); !s.ok()) return s;
  // An empty result is right at once, and nothing runs that could be timed.
  if (options_.check_only || workload_.d_bytes() == 0) return absl::OkStatus();
  std::vector<Peer> peers;
  if (absl::Status s = ListPeers(result, peers); !s.ok()) return s;
  if (sweeping()) {
    if (absl::Status s = KeepFastest(result, entries); !s.ok()) return s;
  }
  return TimeAll(result, entries, peers);
}

// Why `entry` must not be timed; empty when its results are right, and the same each time.
absl::StatusOr<std::string> ShapeRunner::Fault(Entry& entry) {
  absl::StatusOr<Errors> errors = checker_.Check(workload_, entry.call);
  if (LosesDevice(errors.status())) return Prefixed(errors.status(), entry.name);
  if (!errors.ok()) {
    cudaGetLastError();  // a refused launch leaves its code behind; it was reported here
    return absl::StrCat(entry.name, ": ", errors.status().message());
  }
  entry.errors = *errors;
  if (!errors->ok()) return absl::StrCat(entry.name, ": ", Describe(*errors));
  if (options_.bitwise == 0) return std::string();
  absl::StatusOr<uint64_t> changing =
      checker_.CountChanging(workload_, entry.call, options_.bitwise);
  if (!changing.ok()) return Prefixed(changing.status(), entry.name);
  if (*changing == 0) return std::string();
  return absl::StrCat(entry.name, ": ", *changing, " words of D differed between ",
                      options_.bitwise, " runs");
}

// A wrong kernel is never timed and makes the outcome wrong; the others of a sweep are still
// measured.
absl::Status ShapeRunner::CheckEntries(ShapeResult& result, std::vector<Entry>& entries) {
  std::vector<Entry> right;
  for (Entry& entry : entries) {
    absl::StatusOr<std::string> fault = Fault(entry);
    if (!fault.ok()) return fault.status();
    if (fault->empty()) {
      right.push_back(std::move(entry));
    } else {
      result.outcome = Outcome::kWrong;
      absl::StrAppend(&result.message, result.message.empty() ? "" : "\n    ", *fault);
    }
  }
  result.bitwise_runs = options_.bitwise;
  entries = std::move(right);
  if (entries.empty()) return absl::DataLossError(result.message);
  if (entries[0].name != result.kernel) {  // the choice was wrong: the next best stands in
    result.kernel = entries[0].name;
    result.reason = "choice wrong";
  }
  result.calc_diff = entries[0].errors.calc_diff;
  result.rel_error = entries[0].errors.rel_error;
  return absl::OkStatus();
}

// The fastest few by a short measurement, the choice (first) and the model's choice.
absl::Status ShapeRunner::KeepFastest(ShapeResult& result, std::vector<Entry>& entries) {
  result.variants_timed = static_cast<int>(entries.size());
  std::vector<Call> calls;
  for (const Entry& entry : entries) calls.push_back(entry.call);
  absl::StatusOr<std::vector<std::vector<double>>> seconds =
      machine_.timer->Time(calls, kQuickRepeats);
  if (!seconds.ok()) return Prefixed(seconds.status(), "timing the pool");
  for (size_t i = 0; i < entries.size(); ++i) entries[i].quick_s = Median((*seconds)[i]);
  std::sort(entries.begin() + 1, entries.end(),
            [](const Entry& x, const Entry& y) { return x.quick_s < y.quick_s; });
  size_t kept = 1;
  for (size_t i = 1; i < entries.size(); ++i) {
    if (i <= kKeptVariants || entries[i].name == result.model_kernel) {
      if (kept != i) entries[kept] = std::move(entries[i]);
      ++kept;
    }
  }
  entries.erase(entries.begin() + kept, entries.end());
  return absl::OkStatus();
}

absl::Status ShapeRunner::ListPeers(ShapeResult& result, std::vector<Peer>& peers) {
  absl::StatusOr<Call> floor = BestFloor();
  if (!floor.ok()) return Prefixed(floor.status(), "the floor");
  peers.push_back({*std::move(floor), &result.floor_us});
  if (!machine_.cublaslt.has_value()) return absl::OkStatus();
  const cuda::CublasLt& lt = *machine_.cublaslt;
  struct Wanted {
    CublasLtKind kind;
    cuda::Fp8GemmArgs args;
    double* us;
  };
  const Wanted wanted[] = {
      {CublasLtKind::kFp8Block, workload_.block_args(), &result.cublaslt_block_us},
      {CublasLtKind::kFp8TensorWise, workload_.tensor_args(), &result.cublaslt_tensorwise_us},
      {CublasLtKind::kBf16, workload_.bf16_args(), &result.cublaslt_bf16_us},
  };
  plans_.clear();
  plans_.reserve(std::size(wanted));  // the calls point into it
  for (const Wanted& w : wanted) {
    const bool block = w.kind == CublasLtKind::kFp8Block;
    absl::StatusOr<cuda::CublasLt::Plan> plan = lt.Prepare(w.kind, w.args);
    absl::Status status = plan.status();
    if (status.ok()) {
      plans_.push_back(*std::move(plan));
      const cuda::CublasLt::Plan& kept = plans_.back();
      const Call call = [&lt, &kept](cudaStream_t stream) { return lt.Run(kept, stream); };
      // Its own check also warms it up: libraries load kernels at their first use. Only the block
      // kind computes what we do.
      absl::StatusOr<Errors> errors = checker_.Check(workload_, call);
      status = errors.status();
      if (LosesDevice(status)) return Prefixed(status, Name(w.kind));
      if (status.ok()) {
        peers.push_back({call, w.us});
        if (block) result.cublaslt_block_calc_diff = errors->calc_diff;
      }
    }
    if (!status.ok() && block) result.cublaslt_block_refusal = std::string(status.message());
  }
  return absl::OkStatus();
}

absl::StatusOr<Call> ShapeRunner::BestFloor() {
  std::vector<Call> calls;
  for (const FloorConfig& config : kFloorConfigs) {
    calls.push_back(
        [config, traffic = workload_.traffic(), sms = machine_.traits.sms](cudaStream_t stream) {
          return ToStatus(LaunchFloor(config, traffic, sms, stream), "the floor kernel");
        });
  }
  absl::StatusOr<std::vector<std::vector<double>>> seconds =
      machine_.timer->Time(calls, kQuickRepeats);
  if (!seconds.ok()) return seconds.status();
  size_t best = 0;
  for (size_t i = 1; i < calls.size(); ++i) {
    if (Median((*seconds)[i]) < Median((*seconds)[best])) best = i;
  }
  return calls[best];
}

absl::Status ShapeRunner::TimeAll(ShapeResult& result, std::vector<Entry>& entries,
                                  const std::vector<Peer>& peers) {
  std::vector<Call> calls;
  for (const Entry& entry : entries) calls.push_back(entry.call);
  for (const Peer& peer : peers) calls.push_back(peer.call);
  absl::SleepFor(absl::Milliseconds(options_.rest_ms));
  absl::StatusOr<std::vector<std::vector<double>>> seconds =
      machine_.timer->Time(calls, options_.repeats);
  if (!seconds.ok()) return Prefixed(seconds.status(), "timing");
  result.us = Median((*seconds)[0]) * 1e6;
  result.us_p10 = Percentile((*seconds)[0], 0.1) * 1e6;
  result.us_p90 = Percentile((*seconds)[0], 0.9) * 1e6;
  for (size_t i = 0; i < peers.size(); ++i) {
    *peers[i].us = Median((*seconds)[entries.size() + i]) * 1e6;
  }
  if (!sweeping()) return absl::OkStatus();
  for (size_t i = 0; i < entries.size(); ++i) {
    const double us = Median((*seconds)[i]) * 1e6;
    result.best.push_back({entries[i].name, us});
    if (entries[i].name == result.model_kernel) result.model_us = us;
  }
  std::sort(result.best.begin(), result.best.end(),
            [](const VariantTime& x, const VariantTime& y) { return x.us < y.us; });
  return absl::OkStatus();
}

}  // namespace gemmd::kernels::bench
