#include "bench/floor/sgemm.h"

#include <dlfcn.h>

#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/load/percentiles.h"

namespace gemmd::bench {
namespace {

// cblas.h's prototype with its enums as the ints that they are.
using CblasSgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                            const float* a, int lda, const float* b, int ldb, float beta, float* c,
                            int ldc);
constexpr int kRowMajor = 101;
constexpr int kNoTrans = 111;
constexpr int kTrans = 112;

std::vector<float> RandomMatrix(int64_t n, int seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> any(-1, 1);
  std::vector<float> values(n * n);
  for (float& value : values) value = any(random);
  return values;
}

}  // namespace

absl::StatusOr<double> SgemmSeconds(int64_t n, int repeats) {
  static void* const library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return absl::NotFoundError(absl::StrCat("OpenBLAS is not there: ", dlerror()));
  static const auto sgemm = reinterpret_cast<CblasSgemm>(dlsym(library, "cblas_sgemm"));
  if (sgemm == nullptr) return absl::NotFoundError("libopenblas.so.0 has no cblas_sgemm");
  const std::vector<float> a = RandomMatrix(n, 1), b = RandomMatrix(n, 2);
  std::vector<float> d(n * n);
  const int size = static_cast<int>(n);
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) {
    const absl::Time start = absl::Now();
    // B as [n, k], which is how the daemon takes it.
    sgemm(kRowMajor, kNoTrans, kTrans, size, size, size, 1, a.data(), size, b.data(), size, 0,
          d.data(), size);
    if (i > 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
  }
  return Median(seconds);
}

}  // namespace gemmd::bench
