// gradient_bench: gradients of weights, dense and k-grouped, by every config of the gradient
// kernels. Checks samples against float64 before it times, and can run one case a thousand times
// over for its bits.
//
//   gradient_bench [--quick] [--runs N] [--only TEXT] [--bits N] [--in-order]
//
// --in-order: groups of few columns are computed in their place and not among the others.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/bench/cuda/gradient/gradient_data.h"
#include "kernels/cpu/ops/convert.h"
#include "kernels/cuda/grouped/k_grouped_op.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::AnyGemmArgs;
using cuda::ElementType;

void Check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

template <class T>
class Array {
 public:
  explicit Array(int64_t count) : bytes_(static_cast<size_t>(count) * sizeof(T)) {
    Check(cudaMalloc(&data_, std::max<size_t>(bytes_, 16)), "cudaMalloc");
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* data() const { return static_cast<T*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

struct Case {
  std::string name;
  std::vector<int64_t> ks;
  int64_t m = 7168;
  int64_t n = 4096;
  DType a = DType::kE4M3;
  DType b = DType::kE5M2;
  DType out = DType::kF32;
  bool adds = false;        // to what D holds
  bool along_rows = false;  // A and B are [k, rows] in memory
};

// FP8's groups begin at multiples of a block.
int64_t StepOf(DType type) { return SizeBytes(type) == 1 ? 128 : 1; }

std::vector<Case> Cases() {
  const std::vector<int64_t> four(4, 8192), sixteen(16, 2048), mixed = {0, 1, 127, 129, 8192};
  std::vector<Case> cases;
  for (const auto& [name, ks] :
       {std::pair("4 x 8192", four), {"16 x 2048", sixteen}, {"mixed k", mixed}}) {
    for (DType out : {DType::kF32, DType::kBF16}) {
      for (bool adds : {false, true}) {
        cases.push_back({std::string(name) + " -> " + std::string(Name(out)) + (adds ? " + c" : ""),
                         ks, 7168, 4096, DType::kE4M3, DType::kE5M2, out, adds});
      }
    }
  }
  cases.push_back({"4 x 8192, 2048 x 7168", four, 2048, 7168});
  cases.push_back({"1 x 8192", {8192}});
  for (const auto& [name, ks] :
       {std::pair("4 x 8192", four), {"16 x 2048", sixteen}, {"mixed k", mixed}}) {
    for (const bool along_rows : {false, true}) {
      for (const auto& [out, adds] : {std::pair(DType::kF32, false),
                                      {DType::kF32, true},
                                      {DType::kBF16, false},
                                      {DType::kBF16, true}}) {
        cases.push_back({std::string("bf16 ") + (along_rows ? "rows " : "") + name + " -> " +
                             std::string(Name(out)) + (adds ? " + c" : ""),
                         ks, 7168, 4096, DType::kBF16, DType::kBF16, out, adds, along_rows});
      }
    }
  }
  // Small enough for a tool that looks at every access.
  const std::vector<int64_t> few = {300, 0, 1, 129};
  cases.push_back({"small", few, 520, 264});
  cases.push_back({"small + c", few, 520, 264, DType::kE4M3, DType::kE5M2, DType::kBF16, true});
  for (const bool along_rows : {false, true}) {
    cases.push_back(
        {"small bf16", few, 520, 264, DType::kBF16, DType::kBF16, DType::kF32, false, along_rows});
    cases.push_back(
        {"small f16 + c", few, 520, 264, DType::kF16, DType::kF16, DType::kF16, true, along_rows});
  }
  cases.push_back({"4 x 8192 of e4m3 alone", four, 7168, 4096, DType::kE4M3, DType::kE4M3});
  return cases;
}

// A case's memory, and the op over it.
class Workload {
 public:
  explicit Workload(const Case& c)
      : case_(c),
        groups_(static_cast<int64_t>(c.ks.size())),
        k_(std::accumulate(c.ks.begin(), c.ks.end(), int64_t{0},
                           [](int64_t sum, int64_t k) { return sum + (k + 127) / 128 * 128; })),
        a_(c.m * k_ * SizeBytes(c.a)),
        b_(c.n * k_ * SizeBytes(c.b)),
        a_scales_(c.m * (k_ / 128)),
        b_scales_(c.n * (k_ / 128)),
        d_(groups_ * c.m * c.n * SizeBytes(c.out)),
        index_(groups_),
        scratch_(1 << 20),
        fault_(1) {
    Check(Fill(a_, c.m * k_, c.a, 1), "a");
    Check(Fill(b_, c.n * k_, c.b, 2), "b");
    Check(FillFloats(a_scales_.data(), c.m * (k_ / 128), 1.0f, 3), "scales of a");
    Check(FillFloats(b_scales_.data(), c.n * (k_ / 128), 1.0f, 4), "scales of b");
    Check(cudaMemset(d_.data(), 0, d_.bytes()), "d");
    std::vector<int32_t> ends;
    int64_t end = 0;
    for (const int64_t k : c.ks) {
      const int64_t step = StepOf(c.a);
      if (k > 0) end = (end + step - 1) / step * step + k;
      first_.push_back(end - k);
      ends.push_back(static_cast<int32_t>(end));
    }
    Check(cudaMemcpy(index_.data(), ends.data(), ends.size() * 4, cudaMemcpyDefault), "ends");
    const auto tensor = [](int slot, DType dtype, Dims shape) {
      return TensorRef{slot, 0, dtype, shape, RowMajorStrides(shape)};
    };
    if (StepOf(c.a) == 1) {
      op_.a.values = tensor(0, c.a, MakeDims({c.m, k_}));
      op_.b.values = tensor(2, c.b, MakeDims({c.n, k_}));
      if (c.along_rows) {
        op_.a.values.strides = MakeDims({1, c.m});
        op_.b.values.strides = MakeDims({1, c.n});
      }
    } else {
      op_.a = {tensor(0, c.a, MakeDims({c.m, k_})), ScaleGranularity::kBlock1x128,
               TensorRef{1, 0, DType::kF32, MakeDims({c.m, k_ / 128}), MakeDims({1, c.m})}};
      op_.b = {tensor(2, c.b, MakeDims({c.n, k_})), ScaleGranularity::kBlock1x128,
               TensorRef{3, 0, DType::kF32, MakeDims({c.n, k_ / 128}), MakeDims({1, c.n})}};
    }
    op_.groups = tensor(4, DType::kI32, MakeDims({groups_}));
    op_.layout = GroupLayout::kEnds;
    op_.alignment = StepOf(c.a);
    op_.d = tensor(5, c.out, MakeDims({groups_, c.m, c.n}));
    if (c.adds) {
      op_.c = op_.d;
      op_.beta = 1;
    }
    slots_ = {
        reinterpret_cast<std::byte*>(a_.data()),     reinterpret_cast<std::byte*>(a_scales_.data()),
        reinterpret_cast<std::byte*>(b_.data()),     reinterpret_cast<std::byte*>(b_scales_.data()),
        reinterpret_cast<std::byte*>(index_.data()), reinterpret_cast<std::byte*>(d_.data())};
  }

  void Use(int config, bool in_order, const cuda::DeviceTraits& device) {
    cuda::KGroupedLayout layout = cuda::LayoutOf(op_, true);
    layout.config = config;
    auto launches = cuda::PrepareKGrouped(op_, layout, slots_,
                                          reinterpret_cast<std::byte*>(scratch_.data()), device);
    if (!launches.ok()) {
      std::fprintf(stderr, "%s\n", launches.status().ToString().c_str());
      std::exit(1);
    }
    launches_ = *std::move(launches);
    if (in_order) launches_.gradient->launch.mixes = false;
  }
  void Run() {
    const absl::Status status = cuda::QueueKGrouped(launches_, fault_.data(), false, nullptr);
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }
  double flops() const {
    double k = 0;
    for (const int64_t each : case_.ks) k += static_cast<double>(each);
    return 2.0 * static_cast<double>(case_.m) * static_cast<double>(case_.n) * k;
  }
  void Clear() { Check(cudaMemset(d_.data(), 0, d_.bytes()), "clearing d"); }
  const Array<std::byte>& d() const { return d_; }

  // The largest error of samples, of the largest of the sums' magnitudes; of a run on a cleared D.
  double Error() {
    double worst = 0;
    for (int64_t g = 0; g < groups_; ++g) {
      for (int s = 0; s < 24; ++s) {
        const int64_t i = (s * 2654435761u + 17 * g) % case_.m, j = (s * 40503u + 31 * g) % case_.n;
        const auto a = Row(a_.data(), case_.a, case_.m, i, g);
        const auto b = Row(b_.data(), case_.b, case_.n, j, g);
        const auto x = Scales(a_scales_.data(), case_.m, i, g);
        const auto y = Scales(b_scales_.data(), case_.n, j, g);
        double sum = 0, magnitude = 1e-30;
        for (size_t t = 0; t < a.size(); ++t) {
          const double term = static_cast<double>(a[t]) * b[t] * x[t / 128] * y[t / 128];
          sum += term;
          magnitude += std::abs(term);
        }
        float value = 0;
        std::byte code[4];
        const int size = SizeBytes(case_.out);
        Check(cudaMemcpy(code, d_.data() + ((g * case_.m + i) * case_.n + j) * size, size,
                         cudaMemcpyDefault),
              "d");
        cpu::ToF32(case_.out, code, 1, &value);
        if (std::isnan(value)) return INFINITY;
        worst = std::max(worst, std::abs(value - sum) / magnitude);
      }
    }
    return worst;
  }

 private:
  static cudaError_t Fill(const Array<uint8_t>& codes, int64_t count, DType type, uint32_t seed) {
    if (SizeBytes(type) == 1) return FillCodes(codes.data(), count, type == DType::kE5M2, seed);
    return Fill16Bits(reinterpret_cast<uint16_t*>(codes.data()), count, type == DType::kF16, seed);
  }
  // Of `rows` rows.
  std::vector<float> Row(const uint8_t* data, DType dtype, int64_t rows, int64_t row,
                         int64_t g) const {
    const int64_t k = case_.ks[g], size = SizeBytes(dtype);
    std::vector<std::byte> codes(k * size);
    std::vector<float> values(k);
    if (codes.empty()) return values;
    if (case_.along_rows) {
      Check(cudaMemcpy2D(codes.data(), size, data + (first_[g] * rows + row) * size, rows * size,
                         size, k, cudaMemcpyDefault),
            "a row");
    } else {
      Check(cudaMemcpy(codes.data(), data + (row * k_ + first_[g]) * size, codes.size(),
                       cudaMemcpyDefault),
            "a row");
    }
    cpu::ToF32(dtype, codes.data(), k, values.data());
    return values;
  }
  std::vector<float> Scales(const float* data, int64_t rows, int64_t row, int64_t g) const {
    std::vector<float> scales((case_.ks[g] + 127) / 128, 1.0f);
    if (scales.empty() || StepOf(case_.a) == 1) return scales;
    Check(cudaMemcpy2D(scales.data(), 4, data + first_[g] / 128 * rows + row, rows * 4, 4,
                       scales.size(), cudaMemcpyDefault),
          "a row's scales");
    return scales;
  }

  const Case case_;
  const int64_t groups_, k_;
  std::vector<int64_t> first_;
  Array<uint8_t> a_, b_;
  Array<float> a_scales_, b_scales_;
  Array<std::byte> d_;
  Array<int32_t> index_;
  Array<char> scratch_;
  Array<DataFault> fault_;
  KGroupedMatmulOp op_;
  std::vector<std::byte*> slots_;
  cuda::KGroupedLaunches launches_;
};

double MedianSeconds(Workload& work, int runs) {
  std::vector<float> times;
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  for (int i = -2; i < runs; ++i) {
    Check(cudaEventRecord(begin), "record");
    work.Run();
    Check(cudaEventRecord(end), "record");
    Check(cudaEventSynchronize(end), "a run");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin, end), "time");
    if (i >= 0) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2] * 1e-3;
}

// Runs that left other bits than the first.
int64_t OtherBits(Workload& work, int runs) {
  work.Clear();
  work.Run();
  Array<std::byte> kept(static_cast<int64_t>(work.d().bytes()));
  Check(cudaMemcpy(kept.data(), work.d().data(), kept.bytes(), cudaMemcpyDefault), "keeping d");
  Array<unsigned long long> different(1);
  int64_t others = 0;
  for (int i = 1; i < runs; ++i) {
    work.Clear();
    Check(cudaMemset(different.data(), 0, different.bytes()), "clearing");
    work.Run();
    Check(CountDifferent(reinterpret_cast<const uint32_t*>(work.d().data()),
                         reinterpret_cast<const uint32_t*>(kept.data()),
                         static_cast<int64_t>(kept.bytes() / 4), different.data()),
          "comparing");
    unsigned long long count = 0;
    Check(cudaMemcpy(&count, different.data(), sizeof(count), cudaMemcpyDefault), "a run");
    others += count != 0;
  }
  return others;
}

int Main(int argc, char** argv) {
  int runs = 20, bits = 0, worst_status = 0;
  bool in_order = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      runs = 5;
    } else if (flag == "--in-order") {
      in_order = true;
    } else if (i + 1 < argc && flag == "--runs") {
      runs = std::atoi(argv[++i]);
    } else if (i + 1 < argc && flag == "--bits") {
      bits = std::atoi(argv[++i]);
    } else if (i + 1 < argc && flag == "--only") {
      only = argv[++i];
    } else {
      std::fprintf(
          stderr,
          "usage: gradient_bench [--quick] [--runs N] [--only TEXT] [--bits N] [--in-order]\n");
      return 2;
    }
  }
  const auto device = cuda::TraitsOf(0);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n%-28s %-8s %10s %9s %9s %s\n", device->model.c_str(), "case", "config", "us",
              "TFLOP/s", "error", bits > 0 ? "runs of other bits" : "");
  for (const Case& c : Cases()) {
    if (c.name.find(only) == std::string::npos) continue;
    Workload work(c);
    for (int config = 0; config < cuda::kSm90Fp8Gradient.num_configs; ++config) {  // of each type
      const cuda::GemmConfig& shape = cuda::kSm90Fp8Gradient.configs[config];
      work.Use(config, in_order, *device);
      work.Clear();
      work.Run();
      Check(cudaDeviceSynchronize(), "a first run");
      const double error = work.Error();
      if (!(error < (c.out == DType::kF32 ? 1e-3 : 5e-3))) worst_status = 1;
      const double seconds = MedianSeconds(work, runs);
      std::printf("%-28s %dx%dr%d %10.1f %9.1f %9.1e", c.name.c_str(), shape.rows, shape.cols,
                  shape.share_rows, seconds * 1e6, work.flops() / seconds / 1e12, error);
      if (bits > 0) {
        const int64_t others = OtherBits(work, bits);
        std::printf(" %lld of %d", static_cast<long long>(others), bits);
        if (others > 0) worst_status = 1;
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  return worst_status;
}

}  // namespace
}  // namespace gemmd::kernels::bench

int main(int argc, char** argv) { return gemmd::kernels::bench::Main(argc, argv); }
