// What a run of a plan costs the host, by a device that does nothing: a plan of 244 matmuls and
// their quantisations on 504 buffers, as RunPlan takes it from its request to its reply.
//
//   build/cpu/tests/server/service/plan_bench
//
// Prints microseconds, the least and the median of the runs: 1 and 2 stand before the launch, 3 to
// 5 between the device's end and the reply, 6 behind it. "cold" runs find other things in the
// caches, as after the milliseconds that a device takes.

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/engine/server_state.h"
#include "server/service/compute/prepare.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/reply.h"
#include "tests/server/engine/fake_backend.h"

namespace gemmd::server {
namespace {

constexpr int kLayers = 61;
constexpr int kProjections = 4;
constexpr int kRuns = 400;
constexpr size_t kCacheBytes = 64 << 20;  // more than a core's share of any cache

double Micros(absl::Duration duration) { return absl::ToDoubleMicroseconds(duration); }

kernels::TensorRef Matrix(int slot, kernels::DType dtype, int64_t rows, int64_t columns) {
  kernels::TensorRef tensor;
  tensor.slot = slot;
  tensor.dtype = dtype;
  tensor.shape = kernels::MakeDims({rows, columns});
  tensor.strides = kernels::MakeDims({columns, 1});
  return tensor;
}

class Bench {
 public:
  Bench() {
    Config config;
    config.tenants = {{.name = "red"}};
    config.share.disabled = true;
    std::vector<std::unique_ptr<kernels::Backend>> backends;
    backends.push_back(std::make_unique<FakeBackend>(device_));
    state_ = *ServerState::Create(config, std::move(backends), clock_, log_, metrics_, "bench");
    tenant_ = state_->tenants().Find("red");
    session_ = *state_->sessions().Open(*tenant_, {.device = state_->devices()[0].get()});
    SlotTable slots(*session_);
    std::vector<kernels::Op> ops;
    struct Activations {
      int input, values, scales, output;
    };
    std::vector<Activations> activations;
    for (int i = 0; i < kProjections; ++i) {
      const int input = NewSlot(slots), values = NewSlot(slots);
      const int scales = NewSlot(slots), output = NewSlot(slots);
      activations.push_back({input, values, scales, output});
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      for (const Activations& at : activations) {
        using enum kernels::DType;
        kernels::QuantizeOp quantize;
        quantize.src = Matrix(at.input, kBF16, 64, 128);
        quantize.dst = Matrix(at.values, kE4M3, 64, 128);
        quantize.scales = Matrix(at.scales, kF32, 64, 1);
        ops.push_back(quantize);
        kernels::MatmulOp matmul;
        matmul.a = {quantize.dst, kernels::ScaleGranularity::kBlock1x128, quantize.scales};
        matmul.b = {Matrix(NewSlot(slots), kE4M3, 128, 128),
                    kernels::ScaleGranularity::kBlock128x128, Matrix(NewSlot(slots), kF32, 1, 1)};
        matmul.d = Matrix(at.output, kBF16, 64, 128);
        ops.push_back(matmul);
      }
    }
    auto plan = CompilePlan(*session_, ops, slots, {}, "decode");
    if (!plan.ok()) std::printf("%s\n", plan.status().ToString().c_str());
    slots_ = slots.size();
    request_.set_plan_id(ToBytes(*session_->AddPlan(*std::move(plan))));
  }

  int slots() const { return slots_; }

  // One run, and how long each part of it took.
  void Run(v1::ReportLevel level) {
    absl::Time begin = absl::Now();
    const auto took = [&](const char* part) {
      const absl::Time now = absl::Now();
      times_[part].push_back(Micros(now - begin));
      begin = absl::Now();
    };
    auto use = state_->sessions().Use(*tenant_, ToBytes(session_->handle()));
    auto run = PreparePlan(*std::move(use), request_);
    took("1 prepare");
    run->caller_waits = true;
    CountRun(*state_, *run);
    server::Run(*std::move(run), [&](std::shared_ptr<const Outcome> outcome, bool) {
      took("3 complete");
      response_ = MakeReply(outcome, false, level);
      took("4 reply");
    });
    took("2 submit");
    FakeDevice::Launched launched = device_.TakeOne();
    kernels::LaunchResult result;
    result.started = absl::Now();
    result.device_seconds = 4e-3;
    result.op_seconds.assign(launched.program->steps().size(), 8e-6f);
    Disturb();
    begin = absl::Now();
    std::move(launched.done)(std::move(result));
    took("5 let go");
  }

  void Report(const char* what) {
    std::printf("%s\n", what);
    double least = 0, median = 0;
    for (auto& [part, runs] : times_) {
      std::sort(runs.begin(), runs.end());
      std::printf("  %-12s %8.1f %8.1f\n", part.c_str(), runs.front(), runs[runs.size() / 2]);
      least += runs.front();
      median += runs[runs.size() / 2];
    }
    std::printf("  %-12s %8.1f %8.1f\n", "sum", least, median);
    times_.clear();
  }

  void set_cold(bool cold) { cold_ = cold; }
  void Disturb() {
    if (!cold_) return;
    for (size_t i = 0; i < others_.size(); i += 64) ++others_[i];
  }

 private:
  int NewSlot(SlotTable& slots) {
    auto buffer =
        Buffer::Create(*tenant_, *state_->devices()[0], {.size_bytes = 64 << 10}, clock_.Now());
    return *slots.Resolve(*session_->AddBuffer({.buffer = *std::move(buffer)}));
  }

  FakeDevice device_;
  SystemClock clock_;
  Log log_{LogConfig{.level = LogLevel::kError}};
  Metrics metrics_{"bench"};
  std::unique_ptr<ServerState> state_;
  Tenant* tenant_ = nullptr;
  std::shared_ptr<Session> session_;
  v1::PlanRun request_;
  grpc::ByteBuffer response_;
  int slots_ = 0;
  bool cold_ = false;
  std::vector<char> others_ = std::vector<char>(kCacheBytes);
  std::map<std::string, std::vector<double>> times_;
};

void Main() {
  Bench bench;
  std::printf("%d buffers; us: least, median\n", bench.slots());
  for (const bool cold : {false, true}) {
    bench.set_cold(cold);
    for (const auto level : {v1::REPORT_LEVEL_SUMMARY, v1::REPORT_LEVEL_FULL}) {
      for (int i = 0; i < kRuns; ++i) {
        bench.Disturb();
        bench.Run(level);
      }
      bench.Report(absl::StrCat(cold ? "cold" : "warm", ", ", v1::ReportLevel_Name(level)).c_str());
    }
  }
}

}  // namespace
}  // namespace gemmd::server

int main() { gemmd::server::Main(); }
