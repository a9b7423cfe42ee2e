#include "kernels/bench/cuda/measure.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/legality.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::CublasLtKind;
using cuda::GemmVariant;
using cuda::ToStatus;

constexpr int kQuickRepeats = 3;     // of a sweep's first pass, and of choosing the floor's grid
constexpr size_t kKeptVariants = 6;  // of a sweep, timed in earnest

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
  std::vector<Entry> entries;
  if (absl::Status s = ListEntries(result, entries); !s.ok()) return s;
  if (absl::Status s = checker_.Prepare(workload_); !s.ok()) return s;
  result.checked_rows = checker_.checked_rows();
  if (absl::Status s = CheckEntries(result, entries); !s.ok()) return s;
  if (options_.check_only) return absl::OkStatus();
  std::vector<Peer> peers;
  if (absl::Status s = ListPeers(result, peers); !s.ok()) return s;
  if (sweeping()) {
    if (absl::Status s = KeepFastest(result, entries); !s.ok()) return s;
  }
  return TimeAll(result, entries, peers);
}

// The choice first; of a sweep, then every other kernel that can serve.
absl::Status ShapeRunner::ListEntries(ShapeResult& result, std::vector<Entry>& entries) {
  const cuda::Fp8GemmArgs args = workload_.block_args();
  const MatmulProblem problem = ProblemOf(args);
  std::vector<GemmVariant> variants;
  if (!options_.kernel.empty()) {
    const std::optional<GemmVariant> forced = cuda::FindVariant(options_.kernel);
    if (!forced.has_value()) {
      return absl::NotFoundError(
          absl::StrCat("no kernel is called ", options_.kernel, "; see --list"));
    }
    result.reason = "forced";
    variants.push_back(*forced);
  } else {
    absl::StatusOr<cuda::GemmPick> pick = chooser_.Choose(problem);
    if (!pick.ok()) return pick.status();
    result.reason = std::string(Name(pick->reason));
    variants.push_back(pick->variant);
  }
  result.kernel = Name(variants[0]);
  if (sweeping()) {
    if (absl::StatusOr<cuda::GemmPick> pick = model_.Choose(problem); pick.ok()) {
      result.model_kernel = Name(pick->variant);
    }
    int listed = 0;
    for (const cuda::RankedVariant& ranked : model_.Rank(problem)) {
      if (!ranked.why_not.empty() || (options_.top > 0 && listed++ >= options_.top)) continue;
      if (!(ranked.variant == variants[0])) variants.push_back(ranked.variant);
    }
  }
  for (const GemmVariant& variant : variants) {
    if (const std::string why = cuda::WhyNot(variant, args); !why.empty()) {
      return absl::UnimplementedError(why);
    }
    absl::StatusOr<Entry> entry = MakeEntry(variant);
    // A cluster that does not fit this device is the loss of one candidate, unless it was chosen.
    if (absl::IsUnimplemented(entry.status()) && !entries.empty()) continue;
    if (!entry.ok()) return Prefixed(entry.status(), Name(variant));
    entries.push_back(*std::move(entry));
  }
  return absl::OkStatus();
}

absl::StatusOr<ShapeRunner::Entry> ShapeRunner::MakeEntry(const GemmVariant& variant) const {
  absl::StatusOr<cuda::GemmLaunch> launch =
      cuda::PrepareLaunch(variant, workload_.block_args(), machine_.traits);
  if (!launch.ok()) return launch.status();
  Entry entry;
  entry.name = Name(variant);
  entry.call = [variant, launch = *launch](cudaStream_t stream) {
    return cuda::Launch(variant, launch, stream);
  };
  return entry;
}

// A wrong kernel is never timed. One wrong kernel of a sweep is dropped with a note, so that the
// others are still measured, and makes the outcome wrong.
absl::Status ShapeRunner::CheckEntries(ShapeResult& result, std::vector<Entry>& entries) {
  std::vector<Entry> right;
  for (Entry& entry : entries) {
    absl::StatusOr<Errors> errors = checker_.Check(workload_, entry.call);
    if (!errors.ok()) return Prefixed(errors.status(), entry.name);
    entry.errors = *errors;
    uint64_t changing = 0;
    if (errors->ok() && options_.bitwise > 0) {
      absl::StatusOr<uint64_t> words =
          checker_.CountChanging(workload_, entry.call, options_.bitwise);
      if (!words.ok()) return Prefixed(words.status(), entry.name);
      changing = *words;
    }
    if (errors->ok() && changing == 0) {
      right.push_back(std::move(entry));
      continue;
    }
    result.outcome = Outcome::kWrong;
    absl::StrAppend(&result.message, result.message.empty() ? "" : "\n    ", entry.name, ": ",
                    Describe(*errors));
    if (changing != 0) {
      absl::StrAppend(&result.message, "; ", changing, " words differed between ", options_.bitwise,
                      " runs");
    }
  }
  result.bitwise_runs = options_.bitwise;
  const bool choice_is_wrong = right.empty() || right[0].name != result.kernel;
  entries = std::move(right);
  if (choice_is_wrong) return absl::DataLossError(result.message);
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
