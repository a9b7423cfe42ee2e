// gemm_bench_cpu: the CPU backend against OpenBLAS called directly, in one process, by turns.
//
//   gemm_bench_cpu [repeats]
//
// Prints for each case the median and the spread of `repeats` runs, the rate, the ratio to
// cblas_sgemm in FP32 at the same size (of medians; of bests, which a busy machine disturbs less),
// and what the cost model had expected.

#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "kernels/cpu/cpu_backend.h"

namespace gemmd::kernels {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(const std::function<void()>& fn) {
  const Clock::time_point start = Clock::now();
  fn();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

double Best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

// Worst over best: how far to trust the median on a shared machine.
double Spread(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end()) / Best(values) - 1;
}

struct Case {
  const char* name;
  DType dtype;
  ScaleGranularity a, b;
  DType out;
  int64_t m, n, k;
};

// Buffers of random bytes that are finite numbers in their type, bound as slots 0..4.
class Run {
 public:
  Run(Backend& backend, const Case& c) : stream_(backend.CreateStream({})) {
    op_.a = MakeOperand(backend, c.dtype, c.a, c.m, c.k);
    op_.b = MakeOperand(backend, c.dtype, c.b, c.n, c.k);
    op_.d = MakeTensor(backend, c.out, MakeDims({c.m, c.n}));
    ops_.push_back(op_);
    backend_ = &backend;
    program_ = *backend.Compile(ops_);
  }

  const Program::Step& step() const { return program_->steps()[0]; }
  float* floats(int slot) const { return reinterpret_cast<float*>(bindings_.slots[slot]); }

  void Compile() { program_ = *backend_->Compile(ops_); }

  void Launch() {
    absl::Notification done;
    stream_->Launch(program_, bindings_, [&done](LaunchResult) { done.Notify(); });
    done.WaitForNotification();
  }

 private:
  TensorRef MakeTensor(Backend& backend, DType dtype, const Dims& shape) {
    TensorRef tensor{static_cast<int>(memory_.size()), 0, dtype, shape, RowMajorStrides(shape)};
    const int64_t count = *NumElements(shape);
    memory_.push_back(*backend.Allocate(count * SizeBytes(dtype), MemoryKind::kDevice));
    std::byte* data = memory_.back()->address();
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < count; ++i) {
      if (dtype == DType::kF32) {
        reinterpret_cast<float*>(data)[i] = uniform(random_);
      } else if (SizeBytes(dtype) == 2) {  // in [1, 2) or (-2, -1]: bf16's or f16's fraction bits
        const int base = dtype == DType::kBF16 ? 0x3f80 : 0x3c00;
        reinterpret_cast<uint16_t*>(data)[i] = base | (random_() & 0x807f);
      } else {  // e4m3: at most 240, never NaN
        data[i] = static_cast<std::byte>(random_() & 0xf7);
      }
    }
    bindings_.slots.push_back(data);
    return tensor;
  }

  Operand MakeOperand(Backend& backend, DType dtype, ScaleGranularity granularity, int64_t rows,
                      int64_t k) {
    Operand operand{MakeTensor(backend, dtype, MakeDims({rows, k})), granularity, {}};
    if (granularity != ScaleGranularity::kNone) {
      operand.scales =
          MakeTensor(backend, DType::kF32, ScaleShape(operand.values.shape, granularity));
    }
    return operand;
  }

  std::mt19937 random_{20240607};
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Memory>> memory_;
  Bindings bindings_;
  MatmulOp op_;
  std::vector<Op> ops_;
  Backend* backend_ = nullptr;
  std::shared_ptr<const Program> program_;
};

// Ours and the peer's runs alternate, so that a busy neighbour slows both.
void RunCase(Backend& backend, const Case& c, int repeats) {
  Run run(backend, c);
  // The peer's matrices come from the same allocator: huge pages alone are worth a tenth.
  constexpr auto kNone = ScaleGranularity::kNone;
  Run f32(backend, {"", DType::kF32, kNone, kNone, DType::kF32, c.m, c.n, c.k});
  const auto peer = [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, c.m, c.n, c.k, 1, f32.floats(0), c.k,
                f32.floats(1), c.k, 0, f32.floats(2), c.n);
  };
  run.Launch();
  peer();
  std::vector<double> ours, theirs;
  for (int i = 0; i < repeats; ++i) {
    ours.push_back(Seconds([&] { run.Launch(); }));
    theirs.push_back(Seconds(peer));
  }
  const double flops = 2.0 * c.m * c.n * c.k;
  std::printf(
      "%-27s %5ld %5ld %5ld  %-13s %10.1f us +%4.0f%% %6.1f GFLOP/s  %.3fx (best %.3fx)  model "
      "%10.1f "
      "us\n",
      c.name, static_cast<long>(c.m), static_cast<long>(c.n), static_cast<long>(c.k),
      std::string(run.step().choice.kernel).c_str(), Median(ours) * 1e6, Spread(ours) * 100,
      flops / Median(ours) / 1e9, Median(theirs) / Median(ours), Best(theirs) / Best(ours),
      run.step().choice.estimated_seconds * 1e6);
}

// What a single small op costs a server: compile, launch on the caller's thread, completion.
void RunOverhead(Backend& backend) {
  constexpr int kCalls = 20000;
  Run run(backend, {"", DType::kF32, ScaleGranularity::kNone, ScaleGranularity::kNone, DType::kF32,
                    16, 16, 16});
  const double compile = Seconds([&] {
    for (int i = 0; i < kCalls; ++i) run.Compile();
  });
  const double launch = Seconds([&] {
    for (int i = 0; i < kCalls; ++i) run.Launch();
  });
  std::printf("f32 16x16x16: compile %.2f us, launch %.2f us\n", compile / kCalls * 1e6,
              launch / kCalls * 1e6);
}

int Main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  auto backend = CreateCpuBackend({});
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", backend.status().ToString().c_str());
    return 1;
  }
  const DeviceInfo& info = (*backend)->info();
  std::printf("%s, %s, modelled peak %.0f GFLOP/s in f32, %d runs each\n", info.model.c_str(),
              info.architecture.c_str(), info.peak_flops[static_cast<size_t>(DType::kF32)] / 1e9,
              repeats);
  constexpr auto kNone = ScaleGranularity::kNone;
  constexpr auto k1x128 = ScaleGranularity::kBlock1x128;
  constexpr auto k128x128 = ScaleGranularity::kBlock128x128;
  const Case cases[] = {
      {"f32", DType::kF32, kNone, kNone, DType::kF32, 2048, 2048, 2048},
      {"e4m3/1x128 128x128 -> bf16", DType::kE4M3, k1x128, k128x128, DType::kBF16, 2048, 2048,
       2048},
      {"bf16 -> bf16", DType::kBF16, kNone, kNone, DType::kBF16, 2048, 2048, 2048},
      {"i8 -> f32", DType::kI8, kNone, kNone, DType::kF32, 1024, 1024, 1024},
      {"i8/1x128 128x128 -> bf16", DType::kI8, k1x128, k128x128, DType::kBF16, 1024, 1024, 1024},
      {"e4m3/1x128 128x128 -> bf16", DType::kE4M3, k1x128, k128x128, DType::kBF16, 1, 4096, 4096},
      {"bf16 -> bf16", DType::kBF16, kNone, kNone, DType::kBF16, 1, 4096, 4096},
      {"bf16 -> bf16", DType::kBF16, kNone, kNone, DType::kBF16, 8, 4096, 4096},
      {"bf16 -> bf16", DType::kBF16, kNone, kNone, DType::kBF16, 32, 4096, 4096},
      {"bf16 -> bf16", DType::kBF16, kNone, kNone, DType::kBF16, 64, 4096, 4096},
      {"f32", DType::kF32, kNone, kNone, DType::kF32, 1, 4096, 4096},
      {"f32", DType::kF32, kNone, kNone, DType::kF32, 256, 256, 256},
      {"e4m3/1x128 128x128 -> bf16", DType::kE4M3, k1x128, k128x128, DType::kBF16, 256, 256, 256},
      {"f32", DType::kF32, kNone, kNone, DType::kF32, 16, 16, 16},
      {"e4m3/1x128 128x128 -> bf16", DType::kE4M3, k1x128, k128x128, DType::kBF16, 16, 16, 16},
      {"i8 -> f32", DType::kI8, kNone, kNone, DType::kF32, 16, 16, 16},
  };
  for (const Case& c : cases) RunCase(**backend, c, c.m * c.n * c.k < (1 << 25) ? 200 : repeats);
  RunOverhead(**backend);
  return 0;
}

}  // namespace
}  // namespace gemmd::kernels

int main(int argc, char** argv) { return gemmd::kernels::Main(argc, argv); }
