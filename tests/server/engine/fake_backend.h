// A device that does nothing until the test says so: programs pile up on its stream, and the test
// completes them.

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "kernels/backend.h"

namespace gemmd::server {

class FakeMemory final : public kernels::Memory {
 public:
  FakeMemory(int64_t size, kernels::MemoryKind kind) : bytes_(size), kind_(kind) {
    if (kind != kernels::MemoryKind::kHostShared) return;
    memfd_ = memfd_create("fake", MFD_CLOEXEC);
    if (ftruncate(memfd_, size) != 0) std::abort();
  }
  ~FakeMemory() override {
    if (memfd_ >= 0) close(memfd_);
  }
  int64_t size_bytes() const override { return static_cast<int64_t>(bytes_.size()); }
  kernels::MemoryKind kind() const override { return kind_; }
  std::byte* address() const override { return const_cast<std::byte*>(bytes_.data()); }
  absl::Status Gather(int64_t, Sources) override { return absl::OkStatus(); }
  absl::Status CopyOut(int64_t, absl::Span<std::byte>) const override { return absl::OkStatus(); }
  // What is there, others may map; address() is other memory, as a device's may be.
  int shared_fd() const override { return memfd_; }
  absl::StatusOr<kernels::DeviceHandle> Share() const override {
    if (kind_ != kernels::MemoryKind::kDeviceShared) {
      return absl::FailedPreconditionError("not shared device memory");
    }
    return kernels::DeviceHandle{
        .handle = std::string(64, 'h'), .size_bytes = size_bytes(), .gpu_uuid = "GPU-fake"};
  }

 private:
  std::vector<std::byte> bytes_;
  kernels::MemoryKind kind_;
  int memfd_ = -1;
};

class FakeProgram final : public kernels::Program {
 public:
  explicit FakeProgram(double seconds, size_t steps = 1, std::string_view kernel = "fake_f32",
                       std::vector<kernels::ShapeCalls> tunable = {})
      : seconds_(seconds), tunable_(std::move(tunable)) {
    for (size_t i = 0; i < steps; ++i) {
      steps_.push_back({.op = "matmul",
                        .dtype = kernels::DType::kF32,
                        .choice = {.kernel = kernel, .estimated_seconds = seconds / steps},
                        .flops = 1,
                        .bytes = 1});
    }
  }
  absl::Span<const Step> steps() const override { return steps_; }
  double estimated_seconds() const override { return seconds_; }
  absl::Span<const kernels::ShapeCalls> tunable() const override { return tunable_; }

 private:
  double seconds_;
  std::vector<kernels::ShapeCalls> tunable_;
  std::vector<Step> steps_;
};

// What the stream was given and has not been told to complete. Outlives its backend.
class FakeDevice {
 public:
  explicit FakeDevice(bool one_launcher = false) : one_launcher(one_launcher) {}
  const bool one_launcher;   // Stream::prefers_one_launcher
  int64_t pinned_bytes = 0;  // Backend's; before it is used
  bool signals = false;      // likewise
  bool marks = false;        // likewise: its streams are said to wait for each other
  // What programs are compiled to from now on, and what of it a Tuner could measure.
  std::string_view kernel = "fake_f32";
  std::vector<kernels::ShapeCalls> tunable;

  struct Launched {
    std::shared_ptr<const kernels::Program> program;
    kernels::Bindings bindings;
    kernels::Stream::Done done;
    bool waited_for = false;  // by LaunchAndWait
    int stream = 0;           // the backend's first, second, ...
    std::thread::id launcher = {};
  };

  void Add(Launched launched) {
    absl::MutexLock lock(&mutex_);
    launched.launcher = std::this_thread::get_id();
    launched_.push_back(std::move(launched));
    ++total_;
  }
  int pending() const {
    absl::MutexLock lock(&mutex_);
    return static_cast<int>(launched_.size());
  }
  int total() const {
    absl::MutexLock lock(&mutex_);
    return total_;
  }
  // On which stream each of them is.
  std::vector<int> streams() const {
    absl::MutexLock lock(&mutex_);
    std::vector<int> streams;
    for (const Launched& launched : launched_) streams.push_back(launched.stream);
    return streams;
  }
  // Completes the oldest as having taken `seconds` (its estimate when negative). False when nothing
  // is launched.
  bool CompleteOne(double seconds = -1, absl::Status status = absl::OkStatus()) {
    return CompleteOneOf([](const Launched&) { return true; }, seconds, std::move(status));
  }
  bool CompleteOneOf(absl::FunctionRef<bool(const Launched&)> wanted, double seconds = -1,
                     absl::Status status = absl::OkStatus()) {
    if (absl::Status fault = health(); !fault.ok()) status = std::move(fault);
    Launched next;
    {
      absl::MutexLock lock(&mutex_);
      const auto found = std::find_if(launched_.begin(), launched_.end(), wanted);
      if (found == launched_.end()) return false;
      next = std::move(*found);
      launched_.erase(found);
    }
    kernels::LaunchResult result;
    result.status = std::move(status);
    result.started = absl::Now();
    result.device_seconds = seconds < 0 ? next.program->estimated_seconds() : seconds;
    std::move(next.done)(std::move(result));
    return true;
  }
  // The oldest, for the test to complete by itself. Something is launched.
  Launched TakeOne() {
    absl::MutexLock lock(&mutex_);
    Launched next = std::move(launched_.front());
    launched_.pop_front();
    return next;
  }
  // From now on the device is fenced: `fault` is its health, and what is launched fails with it.
  void Fault(absl::Status fault) {
    absl::MutexLock lock(&mutex_);
    health_ = std::move(fault);
  }
  absl::Status health() const {
    absl::MutexLock lock(&mutex_);
    return health_;
  }
  // From now on its programs cannot reach other devices' memory, because of `why`.
  void CannotReach(absl::Status why) {
    absl::MutexLock lock(&mutex_);
    can_reach_ = std::move(why);
  }
  absl::Status can_reach() const {
    absl::MutexLock lock(&mutex_);
    return can_reach_;
  }
  void CompleteAll() {
    while (CompleteOne()) {
    }
  }

 private:
  mutable absl::Mutex mutex_;
  std::deque<Launched> launched_ ABSL_GUARDED_BY(mutex_);
  int total_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status health_ ABSL_GUARDED_BY(mutex_);
  absl::Status can_reach_ ABSL_GUARDED_BY(mutex_);
};

class FakeBackend : public kernels::Backend {
 public:
  explicit FakeBackend(FakeDevice& device, std::string name = "fake:0", std::string gpu_uuid = "",
                       int numa_node = -1)
      : device_(device) {
    info_.name = std::move(name);
    info_.gpu_uuid = std::move(gpu_uuid);
    info_.numa_node = numa_node;
    info_.memory_bytes = int64_t{1} << 30;
  }
  const kernels::DeviceInfo& info() const override { return info_; }
  absl::Span<const kernels::KernelInfo> kernels() const override { return kernels_; }
  absl::Status health() const override { return device_.health(); }
  int64_t pinned_bytes() const override { return device_.pinned_bytes; }
  absl::Status CanReach(const kernels::Backend&) const override { return device_.can_reach(); }
  bool signals() const override { return device_.signals; }
  absl::StatusOr<std::unique_ptr<kernels::Memory>> Allocate(int64_t size,
                                                            kernels::MemoryKind kind) override {
    if (size > info_.memory_bytes) return absl::ResourceExhaustedError("the device is full");
    if (kind == kernels::MemoryKind::kDeviceShared && info_.gpu_uuid.empty()) {
      return absl::UnimplementedError("not a GPU");
    }
    return std::make_unique<FakeMemory>(size, kind);
  }
  absl::StatusOr<std::unique_ptr<kernels::Memory>> ImportShared(int, int64_t size) override {
    return std::make_unique<FakeMemory>(size, kernels::MemoryKind::kHostShared);
  }
  absl::StatusOr<std::unique_ptr<kernels::Memory>> ImportDevice(
      const kernels::DeviceHandle& handle) override {
    if (info_.gpu_uuid.empty()) return absl::UnimplementedError("not a GPU");
    if (handle.handle.size() != 64) return absl::InvalidArgumentError("not a handle");
    return std::make_unique<FakeMemory>(handle.size_bytes, kernels::MemoryKind::kDeviceImported);
  }
  std::unique_ptr<kernels::HostMemory> AllocateOutput(int64_t size_bytes) override {
    return kernels::HeapMemory::Of(size_bytes);
  }
  absl::StatusOr<std::shared_ptr<const kernels::Program>> Compile(
      absl::Span<const kernels::Op> ops) override {
    return std::make_shared<FakeProgram>(1e-3 * ops.size(), ops.size(), device_.kernel,
                                         device_.tunable);
  }
  std::vector<kernels::Candidate> ExplainGrouped(const kernels::GroupedMatmulOp&) const override {
    return {};
  }
  std::vector<kernels::Candidate> ExplainKGrouped(const kernels::KGroupedMatmulOp&) const override {
    return {};
  }
  std::vector<kernels::Candidate> Explain(const kernels::MatmulProblem&) const override {
    return {};
  }
  bool makes_marks() const override { return device_.marks; }
  absl::StatusOr<std::shared_ptr<kernels::Mark>> MakeMark() override {
    return device_.marks ? std::make_shared<kernels::Mark>() : nullptr;
  }
  std::unique_ptr<kernels::Stream> CreateStream(const kernels::StreamOptions&) override {
    return std::make_unique<FakeStream>(device_, streams_++);
  }

 private:
  class FakeStream final : public kernels::Stream {
   public:
    FakeStream(FakeDevice& device, int number) : device_(device), number_(number) {}
    ~FakeStream() override {
      const auto own = [this](const auto& launched) { return launched.stream == number_; };
      while (device_.CompleteOneOf(own)) {
      }
    }
    void Launch(std::shared_ptr<const kernels::Program> program, kernels::Bindings bindings,
                Done done) override {
      device_.Add({std::move(program), std::move(bindings), std::move(done), /*waited_for=*/false,
                   number_});
    }
    void LaunchAndWait(std::shared_ptr<const kernels::Program> program, kernels::Bindings bindings,
                       Done done) override {
      device_.Add(
          {std::move(program), std::move(bindings), std::move(done), /*waited_for=*/true, number_});
    }
    bool prefers_one_launcher() const override { return device_.one_launcher; }

   private:
    FakeDevice& device_;
    const int number_;
  };

  FakeDevice& device_;
  int streams_ = 0;
  kernels::DeviceInfo info_;
  const std::vector<kernels::KernelInfo> kernels_ = {
      {.name = "fake_f32", .family = "fake"},
      {.name = "fake_f8", .family = "fake", .why_off = "it failed", .quarantined = true}};
};

}  // namespace gemmd::server
