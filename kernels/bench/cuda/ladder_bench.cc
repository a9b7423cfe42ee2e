#include "kernels/bench/cuda/ladder_bench.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/bench/cuda/check.h"
#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/bench/cuda/f16_workload.h"
#include "kernels/bench/cuda/workload.h"
#include "kernels/bench/statistics.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/ladder/ladder.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::CublasLtKind;
using cuda::ToStatus;

// A row on its way: what to call, and how to see whether it is right.
struct Contestant {
  LadderRow row;
  Call call;
};

class LadderBench {
 public:
  LadderBench(Machine& machine, const Options& options, const Choosers& choosers,
              const Shape& shape)
      : machine_(machine),
        options_(options),
        choosers_(choosers),
        shape_(shape),
        checker_(machine.stream) {}

  absl::StatusOr<std::vector<LadderRow>> Run() {
    absl::Status status = Prepare();
    if (status.ok()) status = AddRungs();
    if (status.ok()) status = AddChoice();
    if (status.ok()) status = AddPeers();
    if (status.ok()) status = Time();
    if (!status.ok()) return status;
    std::vector<LadderRow> rows;
    for (Contestant& contestant : contestants_) rows.push_back(std::move(contestant.row));
    return rows;
  }

 private:
  absl::Status Prepare() {
    absl::Status status = f16_.Prepare(shape_, options_.seed, machine_.stream);
    if (!status.ok()) return status;
    status =
        fp8_.Prepare(shape_, options_.seed, /*with_bf16=*/false, /*places=*/1, machine_.stream);
    if (!status.ok()) return status;
    return checker_.Prepare(fp8_);
  }

  // What `rung` takes of the shape.
  Shape PartFor(const cuda::ladder::Rung& rung) const {
    Shape part = shape_;
    constexpr int64_t kTile = cuda::ladder::kTileRows;
    if (rung.one_tile) part = {std::min(part.m, kTile), std::min(part.n, kTile), part.k};
    if (rung.one_k_tile) part.k = std::min<int64_t>(part.k, 64);
    return part;
  }

  absl::Status AddRungs() {
    for (int i = 0; i < cuda::ladder::kNumRungs; ++i) {
      const cuda::ladder::Rung& rung = cuda::ladder::kRungs[i];
      const Shape part = PartFor(rung);
      LadderRow row{.shape = shape_, .took = part, .kernel = rung.name, .idea = rung.idea};
      row.fp8 = rung.is_fp8;
      const cuda::MatmulArgs args =
          rung.is_fp8 ? fp8_.args() : MatmulArgsOf(f16_.args(part), DType::kF16);
      const std::string why = rungs_.WhyNot(i, args.problem);
      if (!why.empty()) {
        row.outcome = Outcome::kRefused;
        row.message = why;
        contestants_.push_back({std::move(row), nullptr});
        continue;
      }
      absl::StatusOr<Call> call = BindMember(rungs_, i, args);
      if (!call.ok()) return call.status();
      if (absl::Status s = Add(std::move(row), *std::move(call)); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // The skeleton's own: what the pool would take.
  absl::Status AddChoice() {
    ShapeResult chosen;
    absl::StatusOr<std::vector<Entry>> entries =
        ListEntries(options_, choosers_, machine_.traits, fp8_, chosen);
    if (!entries.ok()) return entries.status();
    LadderRow row{.shape = shape_, .took = shape_, .kernel = (*entries)[0].name};
    row.idea = "the skeleton's own, FP8";
    row.fp8 = true;
    return Add(std::move(row), (*entries)[0].call);
  }

  absl::Status AddPeers() {
    if (!machine_.cublaslt.has_value()) return absl::OkStatus();
    for (CublasLtKind kind : {CublasLtKind::kF16, CublasLtKind::kFp8Block}) {
      const bool fp8 = kind == CublasLtKind::kFp8Block;
      LadderRow row{.shape = shape_, .took = shape_, .kernel = std::string(Name(kind))};
      row.idea = fp8 ? "cuBLASLt FP8 block-scaled" : "cuBLASLt FP16";
      row.fp8 = fp8;
      absl::StatusOr<Call> call =
          BindMember(*machine_.peers, static_cast<int>(kind),
                     fp8 ? fp8_.args() : MatmulArgsOf(f16_.args(shape_), DType::kF16));
      if (!call.ok()) {
        row.outcome = Outcome::kRefused;
        row.message = std::string(call.status().message());
        contestants_.push_back({std::move(row), nullptr});
        continue;
      }
      if (absl::Status s = Add(std::move(row), *std::move(call)); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // Checks it; a wrong one stays among the rows without a call.
  absl::Status Add(LadderRow row, Call call) {
    absl::StatusOr<Errors> errors =
        row.fp8 ? checker_.Check(fp8_, call) : f16_.Check(row.took, call, machine_.stream);
    if (!errors.ok()) return errors.status();
    row.calc_diff = errors->calc_diff;
    row.rel_error = errors->rel_error;
    row.outcome = errors->ok() ? Outcome::kOk : Outcome::kWrong;
    if (!errors->ok()) {
      row.message = absl::StrFormat("calc_diff %.2e, relative error %.2e, %d stray words",
                                    errors->calc_diff, errors->rel_error, errors->stray_words);
      call = nullptr;
    }
    contestants_.push_back({std::move(row), std::move(call)});
    return absl::OkStatus();
  }

  absl::Status Time() {
    if (options_.check_only) return absl::OkStatus();
    std::vector<Call> calls;
    std::vector<LadderRow*> rows;
    for (Contestant& contestant : contestants_) {
      if (contestant.call == nullptr) continue;
      calls.push_back(contestant.call);
      rows.push_back(&contestant.row);
    }
    const auto seconds = machine_.timer->Time(calls, options_.repeats);
    if (!seconds.ok()) return seconds.status();
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i]->us = Median((*seconds)[i]) * 1e6;
      rows[i]->us_p10 = Percentile((*seconds)[i], 0.1) * 1e6;
      rows[i]->us_p90 = Percentile((*seconds)[i], 0.9) * 1e6;
    }
    return absl::OkStatus();
  }

  const cuda::PlainFamily rungs_{cuda::LadderKernels()};
  Machine& machine_;
  const Options& options_;
  const Choosers& choosers_;
  const Shape shape_;
  F16Workload f16_;
  Workload fp8_{DType::kE4M3};
  Checker checker_;
  std::vector<Contestant> contestants_;
};

}  // namespace

absl::StatusOr<std::vector<LadderRow>> BenchLadder(Machine& machine, const Options& options,
                                                   const Choosers& choosers, const Shape& shape) {
  return LadderBench(machine, options, choosers, shape).Run();
}

}  // namespace gemmd::kernels::bench
