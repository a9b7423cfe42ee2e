// The CPU backend with a Tuner: kernels that exist by name alone, which all are what the CPU would
// take, so that everything about tuning but a GPU's times can be seen on any machine.

#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/shape_trial.h"

namespace gemmd::kernels {

class FakeTuner final : public Tuner {
 public:
  static constexpr std::string_view kHead = "fake tuning of model A";

  explicit FakeTuner(Backend& backend) : backend_(backend) {}

  absl::StatusOr<std::vector<std::string>> Contenders(const TuneShape& shape,
                                                      int most) const override {
    absl::StatusOr<KernelChoice> current = Current(shape);
    if (!current.ok()) return current.status();
    std::vector<std::string> kernels = {std::string(current->kernel)};
    for (const std::string& name : names_) {
      if (name != kernels[0] && static_cast<int>(kernels.size()) < most) kernels.push_back(name);
    }
    return kernels;
  }
  absl::StatusOr<KernelChoice> Current(const TuneShape& shape) const override {
    if (shape.n % 16 != 0) return absl::UnimplementedError("n is not a multiple of 16; pad it");
    absl::MutexLock lock(&mutex_);
    const auto found = times_.find(shape);
    if (found == times_.end()) return KernelChoice{names_[0], ChoiceReason::kModel, 1e-6};
    const auto fastest = std::min_element(
        found->second.begin(), found->second.end(),
        [](const KernelTime& x, const KernelTime& y) { return x.seconds < y.seconds; });
    return KernelChoice{*std::find(names_.begin(), names_.end(), fastest->kernel),
                        ChoiceReason::kTuned, fastest->seconds};
  }
  int64_t flush_bytes() const override { return 1 << 16; }
  absl::StatusOr<std::shared_ptr<const Program>> CompileTrial(absl::Span<const Op> ops) override {
    std::vector<Op> plain(ops.begin(), ops.end());
    std::vector<std::string> kernels;
    for (Op& op : plain) {
      auto* const matmul = std::get_if<MatmulOp>(&op);
      if (matmul != nullptr) kernels.push_back(std::exchange(matmul->kernel, ""));
    }
    absl::MutexLock lock(&mutex_);
    last_trial_ = std::move(kernels);
    return backend_.Compile(plain);
  }
  // The kernels of the program that CompileTrial made last, in its order.
  std::vector<std::string> last_trial() const {
    absl::MutexLock lock(&mutex_);
    return last_trial_;
  }
  absl::Status Keep(absl::Span<const ShapeTimes> measured) override {
    absl::MutexLock lock(&mutex_);
    for (const ShapeTimes& entry : measured) times_[entry.shape] = entry.times;
    ++generation_;
    return absl::OkStatus();
  }
  uint64_t generation() const override { return generation_; }
  int kept_shapes() const override {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(times_.size());
  }
  std::string Export(std::string_view) const override {
    absl::MutexLock lock(&mutex_);
    std::string text(kHead);
    for (const auto& [shape, times] : times_) {
      for (const KernelTime& time : times) {
        absl::StrAppend(&text, "\n", shape.m, " ", shape.n, " ", shape.k, " ", time.kernel, " ",
                        time.seconds);
      }
    }
    return text;
  }
  absl::StatusOr<TuningImport> Import(std::string_view text) override {
    const std::vector<std::string> lines = absl::StrSplit(std::string(text), '\n');
    if (!absl::StartsWith(lines[0], "fake tuning")) {
      return absl::InvalidArgumentError("that is no tuning table; export one");
    }
    if (lines[0] != kHead)
      return absl::FailedPreconditionError("it is of another model; tune here");
    TuningImport result;
    absl::MutexLock lock(&mutex_);
    std::map<TuneShape, std::vector<KernelTime>> read;
    for (size_t i = 1; i < lines.size(); ++i) {
      const std::vector<std::string> words = absl::StrSplit(lines[i], ' ');
      TuneShape shape;
      double seconds = 0;
      if (words.size() != 5 || !absl::SimpleAtoi(words[0], &shape.m) ||
          !absl::SimpleAtoi(words[1], &shape.n) || !absl::SimpleAtoi(words[2], &shape.k) ||
          !absl::SimpleAtod(words[4], &seconds)) {
        return absl::InvalidArgumentError(absl::StrCat("line ", i, " is no time; export again"));
      }
      if (std::find(names_.begin(), names_.end(), words[3]) == names_.end()) {
        result.skipped = "1 time of a kernel that this build lacks";
        continue;
      }
      read[shape].push_back({words[3], seconds});
    }
    result.shapes = static_cast<int>(read.size());
    for (auto& [shape, times] : read) times_[shape] = std::move(times);
    ++generation_;
    return result;
  }

 private:
  Backend& backend_;
  const std::vector<std::string> names_ = {"fake_model", "fake_wide", "fake_split"};
  mutable absl::Mutex mutex_;
  std::map<TuneShape, std::vector<KernelTime>> times_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> last_trial_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> generation_{1};
};

// Delegates everything to a CPU backend of one thread.
class TunableBackend final : public Backend {
 public:
  explicit TunableBackend(std::string name = "cpu:0")
      : cpu_(*CreateCpuBackend({.name = std::move(name), .threads = 1})), tuner_(*cpu_) {}

  const DeviceInfo& info() const override { return cpu_->info(); }
  absl::Span<const KernelInfo> kernels() const override { return cpu_->kernels(); }
  absl::Status health() const override { return cpu_->health(); }
  absl::Status CanReach(const Backend& home) const override { return cpu_->CanReach(home); }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t size, MemoryKind kind) override {
    if (full) return absl::ResourceExhaustedError("the device is full");
    return cpu_->Allocate(size, kind);
  }
  absl::StatusOr<std::unique_ptr<Memory>> ImportShared(int fd, int64_t size) override {
    return cpu_->ImportShared(fd, size);
  }
  absl::StatusOr<std::unique_ptr<Memory>> ImportDevice(const DeviceHandle& handle) override {
    return cpu_->ImportDevice(handle);
  }
  std::unique_ptr<HostMemory> AllocateOutput(int64_t size) override {
    return cpu_->AllocateOutput(size);
  }
  absl::StatusOr<std::shared_ptr<const Program>> Compile(absl::Span<const Op> ops) override {
    return cpu_->Compile(ops);
  }
  std::vector<Candidate> ExplainGrouped(const GroupedMatmulOp& op) const override {
    return cpu_->ExplainGrouped(op);
  }
  std::vector<Candidate> ExplainKGrouped(const KGroupedMatmulOp& op) const override {
    return cpu_->ExplainKGrouped(op);
  }
  std::vector<Candidate> Explain(const MatmulProblem& problem) const override {
    return cpu_->Explain(problem);
  }
  std::unique_ptr<Stream> CreateStream(const StreamOptions& options) override {
    return cpu_->CreateStream(options);
  }
  FakeTuner* tuner() override { return &tuner_; }

  std::atomic<bool> full{false};  // allocates nothing more

 private:
  std::unique_ptr<Backend> cpu_;
  FakeTuner tuner_;
};

}  // namespace gemmd::kernels
