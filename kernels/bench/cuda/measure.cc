#include "kernels/bench/cuda/measure.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::CublasLtKind;
using cuda::ToStatus;

constexpr int kQuickRepeats = 5;  // of a sweep's first pass, and of choosing the floor's grid
// Of the fastest's time, what is called again in a quick sweep: more is no contender.
constexpr double kNear = 1.4;
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

// The mean over the places of the medians there.
double MicrosecondsOf(const std::vector<std::vector<double>>& by_place) {
  std::vector<double> medians;
  for (const std::vector<double>& seconds : by_place) medians.push_back(Median(seconds));
  return Mean(medians) * 1e6;
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
  result.dtype = options_.dtype;
  result.outcome = Outcome::kOk;
  const absl::Status status = Measure(result);
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
  const bool bf16 = machine_.cublaslt.has_value() && !options_.check_only && !options_.quick &&
                    options_.bf16_peer && workload_.dtype() == DType::kE4M3;
  const int places = options_.check_only || options_.quick ? 1 : options_.places;
  if (absl::Status s =
          workload_.Prepare(result.shape, options_.seed, bf16, places, machine_.stream);
      !s.ok()) {
    return s;
  }
  absl::StatusOr<std::vector<Entry>> listed =
      ListEntries(options_, choosers_, machine_.traits, workload_, result);
  if (!listed.ok()) return listed.status();
  std::vector<Entry> entries = *std::move(listed);
  if (options_.quick) return MeasureQuick(result, entries);
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

// Sets quick_s of the entries from `first` on.
absl::Status ShapeRunner::TimePool(std::vector<Entry>& entries, size_t first, int repeats) {
  std::vector<Call> calls;
  for (size_t i = first; i < entries.size(); ++i) calls.push_back(entries[i].call);
  absl::StatusOr<std::vector<std::vector<double>>> seconds = machine_.timer->Time(calls, repeats);
  if (!seconds.ok()) return Prefixed(seconds.status(), "timing the pool");
  for (size_t i = 0; i < calls.size(); ++i) entries[first + i].quick_s = Median((*seconds)[i]);
  return absl::OkStatus();
}

void ShapeRunner::ReportPool(ShapeResult& result, const std::vector<Entry>& entries) const {
  result.variants_timed = static_cast<int>(entries.size());
  if (!options_.pool_times) return;
  for (const Entry& entry : entries) result.pool.push_back({entry.name, entry.quick_s * 1e6});
}

// Of the whole pool a few calls at one place, and no more: what a model is fitted to. Of what is
// far behind by its first call that is all. The peer that has no block scales takes part as one
// more entry.
absl::Status ShapeRunner::MeasureQuick(ShapeResult& result, std::vector<Entry>& entries) {
  const std::string chosen = entries[0].name;
  if (machine_.cublaslt.has_value()) {
    const WantedPeer peer = QuickPeer(result);
    absl::StatusOr<Call> call =
        BindMember(*machine_.peers, static_cast<int>(peer.kind), (workload_.*peer.args)());
    if (call.ok()) {
      entries.emplace_back();  // it has no name
      entries.back().call = *std::move(call);
    }
  }
  if (absl::Status s = TimePool(entries, 0, 1); !s.ok()) return s;
  const auto by_seconds = [](const Entry& x, const Entry& y) { return x.quick_s < y.quick_s; };
  const double near = kNear * absl::c_min_element(entries, by_seconds)->quick_s;
  const auto first = std::stable_partition(entries.begin(), entries.end(), [&](const Entry& entry) {
    return entry.quick_s > near && entry.name != chosen && !entry.name.empty();
  });
  if (absl::Status s = TimePool(entries, first - entries.begin(), options_.repeats); !s.ok()) {
    return s;
  }
  std::stable_sort(entries.begin(), entries.end(), by_seconds);
  if (const auto peer = absl::c_find_if(entries, [](const Entry& e) { return e.name.empty(); });
      peer != entries.end()) {
    *QuickPeer(result).us = peer->quick_s * 1e6;
    entries.erase(peer);
  }
  ReportPool(result, entries);
  for (const Entry& entry : entries) {
    if (entry.name == chosen) result.us = entry.quick_s * 1e6;
    if (entry.name == result.model_kernel) result.model_us = entry.quick_s * 1e6;
  }
  result.best.push_back({entries[0].name, entries[0].quick_s * 1e6});
  return absl::OkStatus();
}

// The fastest few by a short measurement, the choice (first) and the model's choice.
absl::Status ShapeRunner::KeepFastest(ShapeResult& result, std::vector<Entry>& entries) {
  if (absl::Status s = TimePool(entries, 0, kQuickRepeats); !s.ok()) return s;
  ReportPool(result, entries);
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

// cuBLASLt on the same operands; of E4M3 also with one scale for all, and in BF16.
std::vector<ShapeRunner::WantedPeer> ShapeRunner::WantedPeers(ShapeResult& result) const {
  double* const same = &result.cublaslt_block_us;
  switch (workload_.dtype()) {
    case DType::kBF16:
      return {{CublasLtKind::kBf16, &Workload::args, same}};
    case DType::kF16:
      return {{CublasLtKind::kF16, &Workload::args, same}};
    case DType::kI8:
      return {{CublasLtKind::kI8, &Workload::integer_args, same}};
    default:
      break;
  }
  std::vector<WantedPeer> peers = {
      {CublasLtKind::kFp8TensorWise, &Workload::tensor_args, &result.cublaslt_tensorwise_us}};
  if (options_.block_scales) {
    peers.insert(peers.begin(), {CublasLtKind::kFp8Block, &Workload::args, same});
  }
  if (options_.bf16_peer) {
    peers.push_back({CublasLtKind::kBf16, &Workload::bf16_args, &result.cublaslt_bf16_us});
  }
  return peers;
}

ShapeRunner::WantedPeer ShapeRunner::QuickPeer(ShapeResult& result) const {
  const bool two = workload_.dtype() == DType::kE4M3 && options_.block_scales;
  return WantedPeers(result)[two ? 1 : 0];
}

absl::Status ShapeRunner::ListPeers(ShapeResult& result, std::vector<Peer>& peers) {
  absl::StatusOr<Binding> floor = BestFloor();
  if (!floor.ok()) return Prefixed(floor.status(), "the floor");
  peers.push_back({*std::move(floor), &result.floor_us});
  if (!machine_.cublaslt.has_value()) return absl::OkStatus();
  for (const WantedPeer& w : WantedPeers(result)) {
    const bool block = w.us == &result.cublaslt_block_us;
    const Binding bind = [&peers = *machine_.peers, w](const Workload& workload) {
      return BindMember(peers, static_cast<int>(w.kind), (workload.*w.args)());
    };
    absl::StatusOr<Call> call = bind(workload_);
    absl::Status status = call.status();
    if (status.ok()) {
      // Its own check also warms it up: libraries load kernels at their first use. Only the block
      // kind computes what we do.
      absl::StatusOr<Errors> errors = checker_.Check(workload_, *call);
      status = errors.status();
      if (LosesDevice(status)) return Prefixed(status, Name(w.kind));
      if (status.ok()) {
        peers.push_back({bind, w.us});
        if (block) result.cublaslt_block_calc_diff = errors->calc_diff;
      }
    }
    if (!status.ok() && block) result.cublaslt_block_refusal = std::string(status.message());
  }
  return absl::OkStatus();
}

absl::StatusOr<Binding> ShapeRunner::BestFloor() {
  std::vector<Binding> bindings;
  std::vector<Call> calls;
  for (const FloorConfig& config : kFloorConfigs) {
    bindings.push_back([config, sms = machine_.traits.sms](const Workload& workload) {
      return Call([config, sms, traffic = workload.traffic()](cudaStream_t stream) {
        return ToStatus(LaunchFloor(config, traffic, sms, stream), "the floor kernel");
      });
    });
    calls.push_back(*bindings.back()(workload_));
  }
  absl::StatusOr<std::vector<std::vector<double>>> seconds =
      machine_.timer->Time(calls, kQuickRepeats);
  if (!seconds.ok()) return seconds.status();
  size_t best = 0;
  for (size_t i = 1; i < calls.size(); ++i) {
    if (Median((*seconds)[i]) < Median((*seconds)[best])) best = i;
  }
  return bindings[best];
}

// Every entry, then every peer, at each place: [kind][place], seconds of single calls.
absl::StatusOr<std::vector<ShapeRunner::Times>> ShapeRunner::TimeAtAllPlaces(
    const std::vector<Entry>& entries, const std::vector<Peer>& peers) {
  std::vector<Binding> kinds;
  for (const Entry& entry : entries) kinds.push_back(entry.bind);
  for (const Peer& peer : peers) kinds.push_back(peer.bind);
  std::vector<Call> calls;
  for (int place = 0; place < options_.places; ++place) {
    workload_.Use(place);
    for (const Binding& bind : kinds) {
      absl::StatusOr<Call> call = bind(workload_);
      if (!call.ok()) return call.status();
      calls.push_back(*std::move(call));
    }
  }
  workload_.Use(0);
  absl::SleepFor(absl::Milliseconds(options_.rest_ms));
  absl::StatusOr<std::vector<std::vector<double>>> seconds =
      machine_.timer->Time(calls, options_.repeats_at_a_place());
  if (!seconds.ok()) return seconds.status();
  std::vector<Times> times(kinds.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    times[i % kinds.size()].push_back(std::move((*seconds)[i]));
  }
  return times;
}

absl::Status ShapeRunner::TimeAll(ShapeResult& result, std::vector<Entry>& entries,
                                  const std::vector<Peer>& peers) {
  absl::StatusOr<std::vector<Times>> times = TimeAtAllPlaces(entries, peers);
  if (!times.ok()) return Prefixed(times.status(), "timing");
  std::vector<double> all;
  for (const std::vector<double>& seconds : (*times)[0]) {
    result.us_by_place.push_back(Median(seconds) * 1e6);
    all.insert(all.end(), seconds.begin(), seconds.end());
  }
  result.us = MicrosecondsOf((*times)[0]);
  result.us_p10 = Percentile(all, 0.1) * 1e6;
  result.us_p90 = Percentile(all, 0.9) * 1e6;
  for (size_t i = 0; i < peers.size(); ++i) {
    *peers[i].us = MicrosecondsOf((*times)[entries.size() + i]);
  }
  if (!sweeping()) return absl::OkStatus();
  for (size_t i = 0; i < entries.size(); ++i) {
    const double us = MicrosecondsOf((*times)[i]);
    result.best.push_back({entries[i].name, us});
    if (entries[i].name == result.model_kernel) result.model_us = us;
  }
  std::sort(result.best.begin(), result.best.end(),
            [](const VariantTime& x, const VariantTime& y) { return x.us < y.us; });
  return absl::OkStatus();
}

}  // namespace gemmd::kernels::bench
