// What the host does for an armed run: from a gate that is set to the stream's launch, from there
// until the poller may look at the next gate, and from the run's end to its answer.
//
//   build/cpu/tests/server/engine/armed_path_bench
//
// The device does nothing. Its ends come on the poller's thread, or, as a GPU's do, on another: in
// the second column what one thread has written is in the other's cache. Prints the median
// nanoseconds over rounds that take turns.

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gemmd/v1/armed_region.h"
#include "server/engine/armed/armed_plans.h"
#include "server/engine/server_state.h"
#include "tests/server/engine/fake_backend.h"

namespace gemmd::server {
namespace {

using Steady = std::chrono::steady_clock;

constexpr int kRounds = 15;
constexpr int kRuns = 4000;

double Nanoseconds(Steady::time_point from, Steady::time_point to) {
  return std::chrono::duration<double, std::nano>(to - from).count();
}

// Keeps one launch, and when it came.
class OneLaunch final : public kernels::Stream {
 public:
  void Launch(std::shared_ptr<const kernels::Program>, kernels::Bindings bindings,
              Done done) override {
    at = Steady::now();
    bindings_ = std::move(bindings);
    done_ = std::move(done);
  }
  void LaunchAndWait(std::shared_ptr<const kernels::Program> program, kernels::Bindings bindings,
                     Done done) override {
    Launch(std::move(program), std::move(bindings), std::move(done));
  }
  void End() {
    kernels::LaunchResult result;
    result.started = absl::Now();
    result.device_seconds = 1e-6;
    result.op_seconds = {1e-6f};
    result.signalled = true;
    std::move(done_)(std::move(result));
  }
  bool prefers_one_launcher() const override { return true; }

  Steady::time_point at;

 private:
  kernels::Bindings bindings_;
  Done done_;
};

class Bench {
 public:
  struct Times {
    std::vector<double> to_launch, to_next, to_answer;
  };

  Bench() {
    Config config;
    config.tenants = {{.name = "red"}};
    config.share.disabled = true;
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(std::make_unique<Backend>(*this));
    state_ = *ServerState::Create(config, std::move(backends), clock_, log_, metrics_, "bench");
    SessionStore::OpenOptions options;
    options.device = state_->devices()[0].get();
    session_ = *state_->sessions().Open(*state_->tenants().Find("red"), std::move(options));
    environment_ = std::make_unique<ArmedEnvironment>(
        ArmedEnvironment{.clock = clock_,
                         .waker = waker_,
                         .metrics = armed_metrics_,
                         .spans = state_->spans(),
                         .check_open = [this] { return state_->CheckOpen(); },
                         .count_rejection = [](const Tenant&, const absl::Status&) {}});
    region_ = *ArmedRegion::Create(*session_, *state_->devices()[0], 64, *environment_);
    const int slot = Arm();
    memory_ = mmap(nullptr, region_->size_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
                   region_->memfd(), 0);
    gate_ = gemmd_armed_gate(memory_, region_->slots(), slot);
  }
  ~Bench() {
    region_->End();
    munmap(memory_, region_->size_bytes());
    region_.reset();
    session_.reset();
    state_.reset();
  }

  Times Run(bool elsewhere) {
    std::atomic<int> ended{0}, launched{0};
    std::atomic<bool> stop{false};
    std::atomic<double> took{0};
    std::thread harvest([&] {
      for (int next = 1; !stop.load();) {
        if (launched.load() < next) {
          std::this_thread::yield();
          continue;
        }
        took.store(End());
        ended.store(next++);
      }
    });
    Times times;
    for (int i = 1; i <= kRuns; ++i) {
      std::atomic_ref<uint32_t>(*gate_).store(GEMMD_ARMED_RUNG);
      const Steady::time_point begin = Steady::now();
      region_->Poll();
      const Steady::time_point end = Steady::now();
      times.to_launch.push_back(Nanoseconds(begin, stream_->at));
      times.to_next.push_back(Nanoseconds(stream_->at, end));
      if (elsewhere) {
        launched.store(i);
        while (ended.load() < i) std::this_thread::yield();
        times.to_answer.push_back(took.load());
      } else {
        times.to_answer.push_back(End());
      }
    }
    stop.store(true);
    harvest.join();
    return times;
  }

 private:
  class Backend final : public FakeBackend {
   public:
    explicit Backend(Bench& bench) : FakeBackend(bench.device_), bench_(bench) {}
    std::unique_ptr<kernels::Stream> CreateStream(const kernels::StreamOptions&) override {
      auto stream = std::make_unique<OneLaunch>();
      if (bench_.stream_ == nullptr) bench_.stream_ = stream.get();
      return stream;
    }

   private:
    Bench& bench_;
  };

  Handle AddBuffer() {
    auto buffer =
        Buffer::Create(session_->tenant(), *state_->devices()[0],
                       {.size_bytes = 64, .kind = kernels::MemoryKind::kDevice}, clock_.Now());
    return *session_->AddBuffer({.buffer = *std::move(buffer)});
  }
  int Arm() {
    SlotTable slots(*session_);
    const auto view = [&](const Handle& handle) {
      kernels::TensorRef tensor;
      tensor.slot = *slots.Resolve(handle);
      tensor.shape = kernels::MakeDims({8});
      tensor.strides = kernels::MakeDims({1});
      return tensor;
    };
    const kernels::Op copy = kernels::CopyOp{view(AddBuffer()), view(AddBuffer())};
    const Handle plan = *session_->AddPlan(*CompilePlan(*session_, {&copy, 1}, slots, {}, "copy"));
    return region_->Arm(*session_->Use(clock_.Now()), plan, {}, {})->slot;
  }
  double End() {
    const Steady::time_point begin = Steady::now();
    stream_->End();
    return Nanoseconds(begin, Steady::now());
  }

  FakeDevice device_{/*one_launcher=*/true};
  OneLaunch* stream_ = nullptr;
  SystemClock clock_;
  Log log_{LogConfig{.level = LogLevel::kError}};
  Metrics metrics_{"bench"};
  ArmedWaker waker_;
  ArmedMetrics armed_metrics_{metrics_};
  std::unique_ptr<ServerState> state_;
  std::unique_ptr<ArmedEnvironment> environment_;
  std::shared_ptr<Session> session_;
  std::shared_ptr<ArmedRegion> region_;
  void* memory_ = nullptr;
  uint32_t* gate_ = nullptr;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void Main() {
  Bench bench;
  std::array<std::array<std::vector<double>, 3>, 2> medians;
  for (int round = 0; round < kRounds; ++round) {
    for (const bool elsewhere : {false, true}) {
      const Bench::Times times = bench.Run(elsewhere);
      medians[elsewhere][0].push_back(Median(times.to_launch));
      medians[elsewhere][1].push_back(Median(times.to_next));
      medians[elsewhere][2].push_back(Median(times.to_answer));
    }
  }
  std::printf("%-24s %12s %12s\n", "ns, median", "one thread", "two threads");
  const std::array<const char*, 3> names = {"gate to launch", "launch to next look",
                                            "end to answer"};
  for (int i = 0; i < 3; ++i) {
    std::printf("%-24s %12.0f %12.0f\n", names[i], Median(medians[0][i]), Median(medians[1][i]));
  }
}

}  // namespace
}  // namespace gemmd::server

int main() {
  // As the daemon does.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  gemmd::server::Main();
}
